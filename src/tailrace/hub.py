"""An opened Tailrace: its topics, and transactions over them."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction
from tailrace.clock import Clock, SystemClock
from tailrace.errors import Conflict, Error, InvalidValue, TopicExists, UnknownTopic
from tailrace.group.asked import Asked, TailOptions
from tailrace.group.definition import group_names, parse_shared
from tailrace.group.deliveries import Deliveries
from tailrace.group.group import Group
from tailrace.group.runtime import close_runtimes
from tailrace.group.starting import StartLike
from tailrace.group.tailing import consume
from tailrace.group.topic import Topic
from tailrace.payload import Payload
from tailrace.settings import HubSettings, load
from tailrace.topic.composite import check_name, creation, first_definition
from tailrace.topic.consumers import consumers, forget
from tailrace.topic.dedup import dedup_tables
from tailrace.topic.own import check_new_topic
from tailrace.topic.producer import close_producers
from tailrace.topic.producer_name import producers_table
from tailrace.topic.router import RouterKind
from tailrace.topic.transaction import OpenTransaction
from tailrace.topic.view import Stored, View, find, names

T = TypeVar("T")

_SCAN_LIMIT = 1000


def open(
    path: str | os.PathLike[str] | None = None,
    *,
    sync: str | None = None,
    settings: HubSettings | None = None,
) -> Hub:
    """Open the hub in a directory, made if it is not there, for as many processes as want to.

    What is not given comes from the environment and the nearest `tailrace.toml`; the default
    directory is `tailrace-data`. `sync` is chosen when a hub is created, and stored in it:
    ``"batch"`` (a push is on the disk when it returns) or ``"none"``. Opening an existing hub with
    another one is an error.
    """
    # Here, because hubs in other backends need not load it.
    from tailrace.backend.embedded import EmbeddedBackend

    chosen = settings or load().hub
    directory = os.fspath(chosen.path if path is None else path)
    if "://" in directory:
        raise InvalidValue("hub", directory, "a directory")
    if sync is None and chosen.sync is not HubSettings().sync:
        sync = chosen.sync
    backend = EmbeddedBackend.open(
        directory,
        sync=sync,
        segment_bytes=chosen.segment_bytes,
        lock_timeout_s=chosen.lock_timeout.total_seconds(),
    )
    return Hub.from_backend(backend, settings=chosen)


class Hub:
    """An opened Tailrace. May be shared by threads and used after a fork."""

    def __init__(self, backend: Backend, settings: HubSettings, clock: Clock) -> None:
        self.backend = backend
        self._settings = settings
        self._clock = clock

    @classmethod
    def from_backend(
        cls, backend: Backend, *, settings: HubSettings | None = None, clock: Clock | None = None
    ) -> Hub:
        """A hub that lives in a given backend, for example in one of `tailrace.testing`."""
        return cls(backend, settings or HubSettings(), clock or SystemClock())

    def __repr__(self) -> str:
        return f"<Hub {self.backend.name}>"

    @property
    def settings(self) -> HubSettings:
        """The settings that it was opened with."""
        return self._settings

    @overload
    def create_topic(
        self, name: str, type: None = None, *, partitions: int = 4,
        router: str = "shard-consistent", any_count: bool = False, exist_ok: bool = False,
    ) -> Topic[Any]: ...  # fmt: skip
    @overload
    def create_topic(
        self, name: str, type: type[T], *, partitions: int = 4,
        router: str = "shard-consistent", any_count: bool = False, exist_ok: bool = False,
    ) -> Topic[T]: ...  # fmt: skip
    def create_topic(
        self,
        name: str,
        type: Any = None,
        *,
        partitions: int = 4,
        router: str = "shard-consistent",
        any_count: bool = False,
        exist_ok: bool = False,
    ) -> Topic[Any]:
        """Create a topic and open it. `TopicExists` when the name is taken.

        `type` is that of its values; without one they may be bytes, text or anything that JSON can
        hold. With `exist_ok` an existing topic is opened, if it is the same: the same router and
        content type, and created with or scaled to that many partitions. Partition counts are 1, 2,
        3 and multiples of 4 and 6; `any_count` allows others.
        """
        if find(self.backend, check_name("topic", name)) is None:
            check_new_topic(name)
        payload: Payload[Any] = Payload(type)
        kind = RouterKind.parse(router)
        definition = first_definition(
            partitions=partitions,
            router=kind,
            content_type=payload.content_type,
            any_count=any_count,
            created_ms=self._clock.now_ms(),
            identity=secrets.token_hex(8),
        )
        try:
            version = self.backend.store.commit(creation(name, definition))
        except Conflict as conflict:
            stored = find(self.backend, name)
            if stored is None:
                raise
            differences = stored.definition.differences(partitions, kind, payload.content_type)
            if differences or not exist_ok:
                raise TopicExists(name, differences) from conflict
            return self._topic(name, stored, payload)
        return self._topic(name, Stored(definition, version), payload)

    @overload
    def topic(self, name: str, type: None = None) -> Topic[Any]: ...
    @overload
    def topic(self, name: str, type: type[T]) -> Topic[T]: ...
    def topic(self, name: str, type: Any = None) -> Topic[Any]:
        """Open a topic. `UnknownTopic` when there is none, unless the setting `auto_create` is on.

        `type` is what values are encoded from and decoded to; without one they come as they were
        pushed.
        """
        stored = find(self.backend, check_name("topic", name))
        if stored is None:
            if not self._settings.auto_create:
                raise UnknownTopic(name, self.backend.name, self.topics())
            return self.create_topic(name, type, partitions=1, exist_ok=True)
        return self._topic(name, stored, Payload(type, stored.definition.content_type))

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        return names(self.backend)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. Who still holds it gets `UnknownTopic`."""
        stored = find(self.backend, check_name("topic", name))
        if stored is None:
            raise UnknownTopic(name, self.backend.name, self.topics())
        definition = View(self.backend, name, stored).delete()
        for consumer in consumers(self.backend.store, name):
            forget(self.backend.store, name, consumer)
        for table in (
            producers_table(name, definition.identity),
            *dedup_tables(name, definition.identity),
        ):
            for keys in self._pages(table):
                self.backend.commit(Transaction(table=dict.fromkeys(keys)))

    @overload
    def tail(
        self, topics: str, type: None = None, *, group: str | None = None,
        start: StartLike = "earliest", **options: Unpack[TailOptions],
    ) -> Deliveries[Any]: ...  # fmt: skip
    @overload
    def tail(
        self, topics: str, type: type[T], *, group: str | None = None,
        start: StartLike = "earliest", **options: Unpack[TailOptions],
    ) -> Deliveries[T]: ...  # fmt: skip
    def tail(
        self,
        topics: str,
        type: Any = None,
        *,
        group: str | None = None,
        start: StartLike = "earliest",
        **options: Unpack[TailOptions],
    ) -> Deliveries[Any]:
        """A consumer of a group that shares a topic, or all topics that match: ``orders.*``.

        Topics that are created later are among them within a second or two. The group may be named
        with them: ``$shared/billing/orders.*``. The `options` are those of `Topic.tail`.
        """
        shared = parse_shared(topics)
        if shared is not None:
            if group not in (None, shared.group):
                raise InvalidValue("group", group, f"{shared.group!r}, as {topics!r} says, or none")
            group, topics = shared
        if group is None:
            raise InvalidValue("group", group, "a name, or $shared/GROUP/TOPICS")
        return consume(
            self.backend,
            group,
            topics,
            start,
            Asked.of(self._settings, **options),
            decoder=lambda name: self._payload(name, type).decode_message,
            settings=self._settings,
            clock=self._clock,
        )

    def group(self, name: str) -> Group:
        """A group that was made by its first consumer. `UnknownGroup` when there is none."""
        return Group(self.backend, check_name("group", name), self._clock)

    def groups(self) -> list[str]:
        """The names of all groups, in order."""
        return group_names(self.backend)

    def transaction(self, *, fence: Fence | None = None) -> OpenTransaction:
        """Pushes to any topics, stored together or not at all when the `with` block ends."""
        return OpenTransaction(self.backend, self.topic, fence)

    def close(self) -> None:
        """Send what producers still hold, and end all use. Closing again does nothing.

        What still consumes in groups is `HubClosed`. Raises what made a producer fail, once all is
        closed.
        """
        try:
            close_runtimes(self.backend)
            close_producers(self.backend)
        finally:
            self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(Error):
                self.close()

    def _topic(self, name: str, stored: Stored, payload: Payload[T]) -> Topic[T]:
        return Topic(View(self.backend, name, stored), payload, self._settings, self._clock)

    def _payload(self, name: str, type: Any) -> Payload[Any]:
        """What reads the values of a topic, which is not made if it is gone."""
        stored = find(self.backend, name)
        if stored is None:
            raise UnknownTopic(name, self.backend.name)
        return Payload(type, stored.definition.content_type)

    def _pages(self, table: str) -> Iterator[list[TableKey]]:
        while page := self.backend.table.scan(table, limit=_SCAN_LIMIT):
            yield [TableKey(table, key) for key, _ in page]
