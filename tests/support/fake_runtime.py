"""A fake runtime, and a consumer that uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.backend.contract import Backend, raise_fence
from tailrace.clock import Clock, SystemClock
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.consumer.options import ConsumerOptions
from tailrace.group.protocol.events import (
    Died,
    Drained,
    Event,
    Lost,
    Progressed,
    Subscribed,
    Unsubscribed,
)
from tailrace.group.session.session import Session
from tailrace.group.store.definition import unit_fence
from tailrace.group.store.end_offsets import end_offsets
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.payload import Payload
from tailrace.settings import HubSettings

FOREVER = float("inf")


def _nothing(_: object) -> None:
    pass


class FakeRuntime:
    """A `SessionRuntime` for tests of sessions and consumers: its one session owns every unit.

    It grants `units`, or all partitions of a topic, when the session subscribes. It calls `save`
    only when a test asks for it, or when a drain does. Tests change the other answers through
    `unanswered`, `on_post` and `on_await`.
    """

    def __init__(self, backend: Backend, group: str = "billing") -> None:
        self.backend = backend
        self.group = group
        self.units: list[str] = []
        self.posted: list[Event] = []
        self.unanswered: tuple[type[Event], ...] = ()
        """The kinds of events that are recorded and have no effect."""
        self.on_post: Callable[[Event], None] = _nothing
        """Called with each event before its effect."""
        self.on_await: Callable[[Mapping[Partition, int]], None] = _nothing
        """Called with awaited partitions, before they are recorded."""
        self.until_s = FOREVER
        self.epochs: dict[str, int] = {}
        self.awaited: dict[Partition, int] = {}
        self.due = 0
        """The number of calls of `progress_due`."""
        self.session: Session | None = None
        self.unsubscribed = self.left = False
        self._mutex = threading.RLock()

    @property
    def joined(self) -> Session:
        """The session that has joined."""
        assert self.session is not None
        return self.session

    def join(self, session: Session) -> FakeRuntime:
        """Add the session."""
        self.session = session
        return self

    def grant(self, unit: str) -> int:
        """Raise the fence of a unit and install the unit; return its epoch."""
        epoch = raise_fence(self.backend.store, unit_fence(self.group, unit)).epoch
        self.epochs[unit] = epoch
        self.joined.install(unit, epoch)
        return epoch

    def post(self, event: Event) -> None:
        self.on_post(event)
        with self._mutex:
            self.posted.append(event)
        if isinstance(event, self.unanswered):
            return
        match event:
            case Subscribed():
                for unit in self.units:
                    self.grant(unit)
            case Unsubscribed():
                self.unsubscribed = True
                for unit, epoch in list(self.epochs.items()):
                    self.joined.drain(unit, epoch)
                self._depart_if_drained()
            case Drained(_, unit, epoch) | Lost(_, unit, epoch):
                if self.epochs.get(unit) == epoch:
                    del self.epochs[unit]
                    self.joined.drop(unit, epoch)
                self._depart_if_drained()
            case _:
                pass

    def _depart_if_drained(self) -> None:
        if self.unsubscribed and not self.epochs:
            self.joined.departed()

    def until(self, session: str) -> float:
        return self.until_s

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        self.on_await(offsets)
        with self._mutex:
            self.awaited |= offsets

    def progress_due(self, session: str) -> None:
        self.due += 1

    def save_soon(self, session: str) -> None:
        self.joined.save()

    def leave(self, session: str) -> None:
        self.left = True

    def wake_session(self) -> None:
        """Wake the session for awaited partitions that have records, as after a commit."""
        with self._mutex:
            awaited = dict(self.awaited)
        ready = []
        for partition, offset in awaited.items():
            bounds = self.backend.log.bounds(partition)
            if bounds.end > offset or bounds.sealed:
                ready.append(partition)
        with self._mutex:
            for partition in ready:
                self.awaited.pop(partition, None)
        if ready:
            self.joined.wake(ready)

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the posted events of a kind."""
        return [event for event in self.posted if isinstance(event, kind)]

    def died(self) -> bool:
        """True if the session ended without unsubscribing."""
        return bool(self.of(Died))

    def marks(self) -> dict[str, int]:
        """Return the newest progress of each unit."""
        return {event.unit: event.mark for event in self.of(Progressed)}


def consume(
    topic: Topic[Any],
    runtime: FakeRuntime,
    *,
    settings: HubSettings | None = None,
    clock: Clock | None = None,
    units: list[str] | None = None,
    payload: Callable[[Any], Any] | None = None,
    join: Callable[[Session], FakeRuntime] | None = None,
    **options: Any,
) -> Consumer[Any]:
    """Return a consumer of the topic's present partitions, or of the given units."""
    definition = topic.view.definition
    runtime.units = units or [
        str(Partition(topic.name, storage.storage, number))
        for storage in definition.storage_topics(topic.name)
        for number in range(storage.partitions)
    ]
    decode = payload or Payload(None, definition.content_type).decode_message
    backend = topic.view.backend
    return Consumer(
        backend,
        runtime.group,
        ConsumerOptions.of(settings or HubSettings(), **options),
        join=join or runtime.join,
        decoder=lambda name: decode,
        ends=lambda: end_offsets(backend, [topic.name]),
        clock=clock or SystemClock(),
    )
