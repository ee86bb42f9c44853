"""The runtime of a process that is alone in its groups: whoever subscribes gets every unit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from tailrace.backend.contract import Backend, raise_fence
from tailrace.clock import Clock, SystemClock
from tailrace.group.asked import Asked
from tailrace.group.definition import unit_fence
from tailrace.group.deliveries import Deliveries
from tailrace.group.ends import ends_of
from tailrace.group.events import (
    Died,
    Drained,
    Event,
    Lost,
    Progressed,
    Subscribed,
    Unsubscribed,
)
from tailrace.group.session import Session
from tailrace.message import Partition
from tailrace.payload import Payload
from tailrace.settings import HubSettings
from tailrace.topic.topic import Topic

FOREVER = float("inf")


class SingleOwner:
    """Grants what it is told to, or all partitions of a topic, and remembers what it was told.

    It calls `save` only when told so by a test, or at once where a drain asks for it.
    """

    def __init__(self, backend: Backend, group: str = "billing") -> None:
        self.backend = backend
        self.group = group
        self.units: list[str] = []
        self.told: list[Event] = []
        self.until_s = FOREVER
        self.epochs: dict[str, int] = {}
        self.awaited: dict[Partition, int] = {}
        self.due = 0
        self.session: Session | None = None
        self.unsubscribed = self.left = False
        self._mutex = threading.RLock()

    @property
    def joined(self) -> Session:
        """The session that has joined."""
        assert self.session is not None
        return self.session

    def join(self, session: Session) -> SingleOwner:
        self.session = session
        return self

    def grant(self, unit: str) -> int:
        """Raise the fence and install the unit; its epoch."""
        assert self.session is not None
        epoch = raise_fence(self.backend.store, unit_fence(self.group, unit)).epoch
        self.epochs[unit] = epoch
        self.session.install(unit, epoch)
        return epoch

    def tell(self, event: Event) -> None:
        with self._mutex:
            self.told.append(event)
        assert self.session is not None
        match event:
            case Subscribed():
                for unit in self.units:
                    self.grant(unit)
            case Unsubscribed():
                self.unsubscribed = True
                for unit, epoch in list(self.epochs.items()):
                    self.session.drain(unit, epoch)
                self._depart_if_drained()
            case Drained(_, unit, epoch) | Lost(_, unit, epoch):
                if self.epochs.get(unit) == epoch:
                    del self.epochs[unit]
                    self.session.drop(unit, epoch)
                self._depart_if_drained()
            case _:
                pass

    def _depart_if_drained(self) -> None:
        if self.unsubscribed and not self.epochs and self.session is not None:
            self.session.departed()

    def until(self, session: str) -> float:
        return self.until_s

    def await_records(self, session: str, ends: Mapping[Partition, int]) -> None:
        with self._mutex:
            self.awaited |= ends

    def progress_due(self, session: str) -> None:
        self.due += 1

    def save_soon(self, session: str) -> None:
        assert self.session is not None
        self.session.save()

    def leave(self, session: str) -> None:
        self.left = True

    def tide(self) -> None:
        """What the runtime does after a commit: wake a session that waits for what is there."""
        assert self.session is not None
        with self._mutex:
            awaited = dict(self.awaited)
        more = []
        for partition, offset in awaited.items():
            bounds = self.backend.log.bounds(partition)
            if bounds.end > offset or bounds.sealed:
                more.append(partition)
        with self._mutex:
            for partition in more:
                self.awaited.pop(partition, None)
        if more:
            self.session.wake(more)

    def of(self, kind: type[Any]) -> list[Any]:
        """What was told of a kind."""
        return [event for event in self.told if isinstance(event, kind)]

    def died(self) -> bool:
        return bool(self.of(Died))

    def marks(self) -> dict[str, int]:
        """The newest progress of each unit."""
        return {event.unit: event.mark for event in self.of(Progressed)}


def consume(
    topic: Topic[Any],
    runtime: SingleOwner,
    *,
    settings: HubSettings | None = None,
    clock: Clock | None = None,
    units: list[str] | None = None,
    payload: Callable[[Any], Any] | None = None,
    join: Callable[[Session], SingleOwner] | None = None,
    **options: Any,
) -> Deliveries[Any]:
    """A consumer of all partitions that the topic has now, or of those units."""
    definition = topic.view.definition
    runtime.units = units or [
        str(Partition(topic.name, storage.storage, number))
        for storage in definition.storage_topics(topic.name)
        for number in range(storage.partitions)
    ]
    decode = payload or Payload(None, definition.content_type).decode_message
    backend = topic.view.backend
    return Deliveries(
        backend,
        runtime.group,
        Asked.of(settings or HubSettings(), **options),
        join=join or runtime.join,
        decoder=lambda name: decode,
        ends=lambda: ends_of(backend, [topic.name]),
        clock=clock or SystemClock(),
    )


MOMENT = timedelta(milliseconds=50)
