"""What the runtime drives and serves, in a form that tests look into."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tailrace.group.actions import Action
from tailrace.group.events import Event, Tick
from tailrace.message import Partition


class Scripted:
    """A machine that answers events as it was told to, and remembers them."""

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
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


class Consumer:
    """A member that remembers what it was told, and by which thread."""

    def __init__(self, name: str = "s1", group: str = "billing") -> None:
        self.id = name
        self.group = group
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.error: BaseException | None = None
        self.saves: Callable[[], None] = lambda: None

    def _note(self, *call: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.calls.append(call)

    def install(self, unit: str, epoch: int) -> None:
        self._note("install", unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        self._note("drain", unit, epoch)

    def drop(self, unit: str, epoch: int) -> None:
        self._note("drop", unit, epoch)

    def departed(self) -> None:
        self._note("departed")

    def wake(self, partitions: Iterable[Partition] = ()) -> None:
        self._note("wake", *partitions)

    def save(self) -> None:
        self._note("save")
        self.saves()

    def fail(self, error: BaseException) -> None:
        self.error = error
