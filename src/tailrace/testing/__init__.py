"""What Tailrace is tested with, for users' tests too: a backend in memory, a clock to be moved, an
auditor that trusts nobody, and a simulator of whole clusters with their faults."""

from __future__ import annotations

from tailrace.testing.auditor import Audit, Auditor
from tailrace.testing.clock import ManualClock
from tailrace.testing.faults import Faults, Turmoil
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
    "Turmoil",
    "UnreliableBackend",
    "Violation",
]
