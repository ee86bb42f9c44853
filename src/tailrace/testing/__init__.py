"""Tools for tests, ours and those of users: a backend in memory, a clock that a test sets, an
independent auditor, and a simulator of whole clusters with faults."""

from __future__ import annotations

from tailrace.testing.auditor import Audit, Auditor
from tailrace.testing.clock import ManualClock
from tailrace.testing.faults import FaultInjector, Faults
from tailrace.testing.groups import Consumer, GroupWorld, SimulatedProcess
from tailrace.testing.memory import MemoryBackend
from tailrace.testing.network import Envelope, Network, Quality
from tailrace.testing.process import Process, Program
from tailrace.testing.simulation import Simulation, Violation
from tailrace.testing.trace import Mark, Trace
from tailrace.testing.unreliable import StoreQuality, UnreliableBackend

__all__ = [
    "Audit",
    "Auditor",
    "Consumer",
    "Envelope",
    "FaultInjector",
    "Faults",
    "GroupWorld",
    "ManualClock",
    "Mark",
    "MemoryBackend",
    "Network",
    "Process",
    "Program",
    "Quality",
    "SimulatedProcess",
    "Simulation",
    "StoreQuality",
    "Trace",
    "UnreliableBackend",
    "Violation",
]
