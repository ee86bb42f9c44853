"""Tools for tests, ours and those of users: runs of apps in virtual time, a backend in memory, a
clock that a test sets, an independent auditor, and a simulator of whole clusters with faults.

Each name is loaded on first use, because every run of pytest loads the plug-in of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailrace.testing.apps.delivered import DeliveryOutcome, HandledDelivery, HeldMessage
    from tailrace.testing.apps.endpoint import SimulatedEndpoint, SimulatedFailure
    from tailrace.testing.apps.not_idle import NotIdle
    from tailrace.testing.apps.run import AppRun, run
    from tailrace.testing.apps.runs import AppRuns
    from tailrace.testing.auditor import Audit, Auditor
    from tailrace.testing.clock import ManualClock
    from tailrace.testing.faults import FaultInjector, Faults
    from tailrace.testing.groups import Consumer, GroupWorld, SimulatedProcess
    from tailrace.testing.memory import MemoryBackend
    from tailrace.testing.network import Network, Packet, Quality
    from tailrace.testing.process import Process, Program
    from tailrace.testing.simulation import Simulation, Violation
    from tailrace.testing.trace import Mark, Trace
    from tailrace.testing.unreliable import StoreQuality, UnreliableBackend

__all__ = [
    "AppRun",
    "AppRuns",
    "Audit",
    "Auditor",
    "Consumer",
    "DeliveryOutcome",
    "FaultInjector",
    "Faults",
    "GroupWorld",
    "HandledDelivery",
    "HeldMessage",
    "ManualClock",
    "Mark",
    "MemoryBackend",
    "Network",
    "NotIdle",
    "Packet",
    "Process",
    "Program",
    "Quality",
    "SimulatedEndpoint",
    "SimulatedFailure",
    "SimulatedProcess",
    "Simulation",
    "StoreQuality",
    "Trace",
    "UnreliableBackend",
    "Violation",
    "run",
]

_HOMES: Final = {
    "apps.delivered": ("DeliveryOutcome", "HandledDelivery", "HeldMessage"),
    "apps.endpoint": ("SimulatedEndpoint", "SimulatedFailure"),
    "apps.not_idle": ("NotIdle",),
    "apps.run": ("AppRun", "run"),
    "apps.runs": ("AppRuns",),
    "auditor": ("Audit", "Auditor"),
    "clock": ("ManualClock",),
    "faults": ("FaultInjector", "Faults"),
    "groups": ("Consumer", "GroupWorld", "SimulatedProcess"),
    "memory": ("MemoryBackend",),
    "network": ("Packet", "Network", "Quality"),
    "process": ("Process", "Program"),
    "simulation": ("Simulation", "Violation"),
    "trace": ("Mark", "Trace"),
    "unreliable": ("StoreQuality", "UnreliableBackend"),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tailrace.testing' has no attribute {name!r}")
    value = getattr(import_module(f"tailrace.testing.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
