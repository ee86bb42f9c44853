"""A runtime that drives a scripted machine and serves a recording session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tailrace.backend.contract import Backend
from tailrace.clock import SystemClock
from tailrace.errors import HubClosed
from tailrace.group.protocol.actions import Action
from tailrace.group.protocol.events import Event, Subscribed, Tick
from tailrace.group.protocol.times import Times
from tailrace.group.runtime.runtime import Runtime
from tailrace.group.store.lifecycle import open_group
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tests.support.waiting import until

SUBSCRIBED = Subscribed("s1", "billing", 5.0)


class ScriptedMachine:
    """A machine that answers events by a script, and records them."""

    def __init__(self) -> None:
        self.process = ""
        self.events: list[Event] = []
        self.ticks = 0
        self.tick_at: float | None = None
        self.leads: list[str] = []
        self.answer: Callable[[Event], Iterable[Action]] = lambda event: ()
        self.threads: set[str] = set()

    def handle(self, event: Event, now: float) -> list[Action]:
        self.threads.add(threading.current_thread().name)
        if isinstance(event, Tick):
            self.ticks += 1
            self.tick_at = None
        else:
            self.events.append(event)
        return list(self.answer(event))

    def deadline(self) -> float | None:
        return self.tick_at

    def validate(self) -> None:
        pass

    def until(self, session: str) -> float:
        return 42.0

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the recorded events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


class RecordingSession:
    """A session that records the calls it gets, and their threads."""

    def __init__(self, name: str = "s1", group: str = "billing") -> None:
        self.id = name
        self.group = group
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.error: BaseException | None = None
        self.saves: Callable[[], None] = lambda: None

    def _record(self, *call: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.calls.append(call)

    def install(self, unit: str, epoch: int) -> None:
        self._record("install", unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        self._record("drain", unit, epoch)

    def drop(self, unit: str, epoch: int) -> None:
        self._record("drop", unit, epoch)

    def departed(self) -> None:
        self._record("departed")

    def wake(self, partitions: Iterable[Partition] = ()) -> None:
        self._record("wake", *partitions)

    def store_changed(self) -> None:
        self._record("store_changed")

    def save(self) -> None:
        self._record("save")
        self.saves()

    def fail(self, error: BaseException) -> None:
        self.error = error


class ScriptedRuntime:
    """A runtime with a scripted machine and one session."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.hub = Hub.from_backend(backend)
        self.orders = self.hub.create_topic("orders", bytes, partitions=2, exist_ok=True)
        open_group(backend, "billing", "orders", "earliest", SystemClock())
        self.machine = ScriptedMachine()
        self.session = RecordingSession()
        self.runtime = Runtime(backend, Times(), 0.01, machine=self._machine)
        self.runtime.add(self.session)

    def _machine(self, process: str, times: Times) -> ScriptedMachine:
        self.machine.process = process
        return self.machine

    def do(self, *actions: Action) -> None:
        """Let the machine request actions."""
        self.machine.answer = lambda event: actions if event == SUBSCRIBED else ()
        self.runtime.post(SUBSCRIBED)

    def event(self, kind: type[Event]) -> Event:
        """Wait for the first event of a kind, and return it."""
        until(lambda: self.machine.of(kind), f"no {kind.__name__}")
        found: Event = self.machine.of(kind)[0]
        return found

    def end(self) -> None:
        """Close the runtime."""
        self.runtime.close(HubClosed("the test is over"))


def threads() -> list[str]:
    """Return the names of the threads that consume in groups."""
    return [each.name for each in threading.enumerate() if each.name.startswith("tailrace ")]
