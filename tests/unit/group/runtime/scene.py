"""A runtime with a scripted machine, and what becomes of it."""

from __future__ import annotations

import threading

from tailrace.backend.contract import Backend
from tailrace.clock import SystemClock
from tailrace.errors import HubClosed
from tailrace.group.actions import (
    Action,
)
from tailrace.group.events import (
    Event,
    Subscribed,
)
from tailrace.group.opening import open_group
from tailrace.group.runtime import Runtime
from tailrace.group.times import Times
from tailrace.hub import Hub
from tests.unit.group.runtime.scripted import Consumer, Scripted
from tests.waiting import until

SUBSCRIBED = Subscribed("s1", "billing", 5.0)


class Scene:
    """A runtime with a scripted machine and one consumer."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.hub = Hub.from_backend(backend)
        self.orders = self.hub.create_topic("orders", bytes, partitions=2, exist_ok=True)
        open_group(backend, "billing", "orders", "earliest", SystemClock())
        self.machine = Scripted()
        self.consumer = Consumer()
        self.runtime = Runtime(backend, Times(), 0.01, machine=self._machine)
        self.runtime.add(self.consumer)

    def _machine(self, process: str, times: Times) -> Scripted:
        self.machine.process = process
        return self.machine

    def do(self, *actions: Action) -> None:
        """Have the machine want something."""
        self.machine.answer = lambda event: actions if event == SUBSCRIBED else ()
        self.runtime.tell(SUBSCRIBED)

    def event(self, kind: type[Event]) -> Event:
        """Wait for the first event of a kind."""
        until(lambda: self.machine.of(kind), f"no {kind.__name__}")
        found: Event = self.machine.of(kind)[0]
        return found

    def end(self) -> None:
        self.runtime.close(HubClosed("the test is over"))


def threads() -> list[str]:
    """The names of the threads that consume in groups."""
    return [each.name for each in threading.enumerate() if each.name.startswith("tailrace ")]
