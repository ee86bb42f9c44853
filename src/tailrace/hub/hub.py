"""An open hub: its topics, groups and subscriptions, and transactions over topics."""

from __future__ import annotations

import contextlib
import secrets
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from tailrace.backend.contract import Backend, Fence
from tailrace.backend.pickling import Unpicklable
from tailrace.backend.table_scan import clear_table
from tailrace.clock import Clock, SystemClock
from tailrace.delivery.load_control import LoadControl, LoadOptions, parse_load
from tailrace.delivery.retry import DEFAULT_RETRY, Retry
from tailrace.errors import (
    Conflict,
    Error,
    InvalidValue,
    ReadOnlyHub,
    TopicExists,
    UnknownTopic,
)
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.consumer.join import consume
from tailrace.group.consumer.options import ConsumerOptions, TailOptions
from tailrace.group.group import Group
from tailrace.group.runtime.runtime import close_runtimes
from tailrace.group.store.definition import group_names, parse_shared
from tailrace.group.store.start import StartLike, parse_start
from tailrace.hub.endpoint import DeliveryOptions, delivery_changes
from tailrace.hub.queue import Queue, QueueOptions, open_queue
from tailrace.hub.subscription import Subscription
from tailrace.hub.topic import Topic
from tailrace.hub.transaction import OpenTransaction
from tailrace.payload import Payload, ValueType
from tailrace.queue.lifecycle import delete_queue, queue_names
from tailrace.queue.replay.lifecycle import delete_replays
from tailrace.settings import HubSettings
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.definition import NewSubscription
from tailrace.subscription.store.lifecycle import create_subscription, subscription_names
from tailrace.topic.composite import Definition, check_name, creation, first_definition
from tailrace.topic.consumers import consumers, unregister
from tailrace.topic.dedup import dedup_tables
from tailrace.topic.internal_topics import check_new_topic, check_not_queue
from tailrace.topic.producer import close_producers
from tailrace.topic.producer_name import producers_table
from tailrace.topic.router import RouterKind
from tailrace.topic.view import StoredDefinition, View, find, names

T = TypeVar("T")


class Hub(Unpicklable):
    """An open hub. May be shared by threads and used after a fork."""

    def __init__(self, backend: Backend, settings: HubSettings, clock: Clock) -> None:
        self.backend = backend
        self._settings = settings
        self._clock = clock

    @classmethod
    def from_backend(
        cls, backend: Backend, *, settings: HubSettings | None = None, clock: Clock | None = None
    ) -> Hub:
        """Return a hub in a given backend, for example the one of `tailrace.testing`."""
        return cls(backend, settings or HubSettings(), clock or SystemClock())

    def __repr__(self) -> str:
        return f"<Hub {self.backend.name}>"

    @property
    def settings(self) -> HubSettings:
        """The settings that the hub was opened with."""
        return self._settings

    @overload
    def create_topic(
        self, name: str, type: None = None, *, partitions: int = 4,
        router: str = "shard-consistent", order_by: str | None = None, any_count: bool = False,
        exist_ok: bool = False, any_type: bool = False,
    ) -> Topic[Any]: ...  # fmt: skip
    @overload
    def create_topic(
        self, name: str, type: type[T], *, partitions: int = 4,
        router: str = "shard-consistent", order_by: str | None = None, any_count: bool = False,
        exist_ok: bool = False, any_type: bool = False,
    ) -> Topic[T]: ...  # fmt: skip
    def create_topic(
        self,
        name: str,
        type: Any = None,
        *,
        partitions: int = 4,
        router: str = "shard-consistent",
        order_by: str | None = None,
        any_count: bool = False,
        exist_ok: bool = False,
        any_type: bool = False,
    ) -> Topic[Any]:
        """Create a topic and open it. `TopicExists` if a topic has that name, and `InvalidName` if
        the name is reserved: it begins with ``tailrace.``, or it is that of a pipeline's topic.

        `type` is the type of its values; without one they may be bytes, text or any JSON value. The
        topic keeps the type: a value or a type that does not agree with it is refused in every
        process. With `any_type` the type is not kept, and of an existing topic not compared.

        With `order_by` the key of each message is a header, ``"header:country"``, or a field of its
        value, ``"customer.id"``. A message that lacks it, or is pushed with another key, is
        refused.

        With `exist_ok`, an existing topic is opened if it is the same: the same router, `order_by`
        and content type, a type that agrees, and created with or scaled to this number of
        partitions. Partition counts are 1, 2, 3 and multiples of 4 and 6; `any_count` allows
        others.
        """
        if find(self.backend, check_name("topic", name)) is None:
            check_new_topic(name)
        payload: Payload[Any] = Payload(type)
        kind = RouterKind.parse(router)
        value_type = None if any_type else ValueType.of(type)
        definition = first_definition(
            partitions=partitions,
            router=kind,
            content_type=payload.content_type,
            any_count=any_count,
            created_ms=self._clock.now_ms(),
            identity=secrets.token_hex(8),
            value_type=value_type,
            order_by=order_by,
        )
        try:
            version = self.backend.store.commit(creation(name, definition))
        except Conflict as conflict:
            stored = find(self.backend, name)
            if stored is None:
                raise
            differences = stored.definition.differences(
                partitions, kind, payload.content_type, value_type, order_by
            )
            if differences or not exist_ok:
                raise TopicExists(name, differences) from conflict
            return self.topic(name, type, any_type=any_type)
        return self._topic(name, StoredDefinition(definition, version), payload)

    @overload
    def topic(self, name: str, type: None = None, *, any_type: bool = False) -> Topic[Any]: ...
    @overload
    def topic(self, name: str, type: type[T], *, any_type: bool = False) -> Topic[T]: ...
    def topic(self, name: str, type: Any = None, *, any_type: bool = False) -> Topic[Any]:
        """Open a topic. `UnknownTopic` if there is none, unless the setting `auto_create` is on.

        `type` is the type that values are encoded from and decoded to; without one, values have the
        type they were pushed with. `TopicTypeMismatch` if it does not agree with the type that the
        topic was created with. A type that adds fields with a default becomes the topic's type.
        With `any_type` nothing is compared, and values of other types are not refused.
        """
        stored = find(self.backend, check_name("topic", name))
        if stored is None:
            unknown = UnknownTopic(name, self.backend.name, self.topics())
            if not self._settings.auto_create:
                raise unknown
            try:
                return self.create_topic(name, type, partitions=1, exist_ok=True, any_type=any_type)
            except ReadOnlyHub:
                raise unknown from None
        content_type = stored.definition.content_type
        if any_type:
            return self._topic(name, stored, Payload(type, content_type))
        view = View(self.backend, name, stored)
        view.agree_on(ValueType.of(type))
        payload: Payload[Any] = Payload(type, content_type, view.definition.value_type)
        payload.read_stored = lambda: view.refresh().definition.value_type
        return Topic(view, payload, self._settings, self._clock)

    def topics(self) -> list[str]:
        """Return the names of all topics, in order."""
        return names(self.backend)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. Later uses of the topic raise `UnknownTopic`.

        Groups and subscriptions of the topic stay; their consumers and workers end with
        `UnknownTopic`. A queue of a subscription is refused: it is deleted with the subscription.
        """
        check_not_queue(check_name("topic", name))
        stored = find(self.backend, name)
        if stored is None:
            raise UnknownTopic(name, self.backend.name, self.topics())
        self._forget_topic(name, View(self.backend, name, stored).delete())

    def _forget_topic(self, name: str, definition: Definition) -> None:
        """Remove what is stored about a topic that was deleted."""
        for consumer in consumers(self.backend.store, name):
            unregister(self.backend.store, name, consumer)
        for table in (
            producers_table(name, definition.identity),
            *dedup_tables(name, definition.identity),
        ):
            clear_table(self.backend, table)

    @overload
    def tail(
        self, topics: str, type: None = None, *, group: str | None = None,
        start: StartLike = "earliest", **options: Unpack[TailOptions],
    ) -> Consumer[Any]: ...  # fmt: skip
    @overload
    def tail(
        self, topics: str, type: type[T], *, group: str | None = None,
        start: StartLike = "earliest", **options: Unpack[TailOptions],
    ) -> Consumer[T]: ...  # fmt: skip
    def tail(
        self,
        topics: str,
        type: Any = None,
        *,
        group: str | None = None,
        start: StartLike = "earliest",
        **options: Unpack[TailOptions],
    ) -> Consumer[Any]:
        """Join a group as a consumer of a topic, or of all topics that match: ``orders.*``.

        Matching topics that are created later join within a second or two. The group may be named
        with the topics: ``$shared/billing/orders.*``. The `options` are those of `Topic.tail`.
        """
        shared = parse_shared(topics)
        if shared is not None:
            if group not in (None, shared.group):
                valid = f"{shared.group!r}, the group in {topics!r}, or none"
                raise InvalidValue("group", group, valid)
            group, topics = shared
        if group is None:
            raise InvalidValue("group", group, "a name, or $shared/GROUP/TOPICS")
        return consume(
            self.backend,
            group,
            topics,
            start,
            ConsumerOptions.of(self._settings, **options),
            decoder=lambda name: self._payload(name, type).decode_message,
            settings=self._settings,
            clock=self._clock,
        )

    def group(self, name: str) -> Group:
        """Return a group, which its first consumer created. `UnknownGroup` if there is none."""
        return Group(self.backend, check_name("group", name), self._clock)

    def groups(self) -> list[str]:
        """Return the names of all groups, in order."""
        return group_names(self.backend)

    def create_subscription(
        self,
        name: str,
        *,
        topic: str,
        shards: int | None = None,
        retry: Retry = DEFAULT_RETRY,
        on_dead_letter: str = "block",
        filter: str | None = None,
        start: StartLike = "earliest",
        rq_partitions: int | None = None,
        dlq_partitions: int | None = None,
        uneven: bool = False,
        exist_ok: bool = False,
        **options: Unpack[DeliveryOptions],
    ) -> Subscription:
        """Create a subscription, which delivers the messages of a topic in order per key.

        `on_dead_letter` is ``"block"``, so that the later messages of a key follow its dead letter
        into the DLQ, or ``"continue"``. It delivers the messages that match `filter`, from `start`
        on, which has the forms of `Topic.tail`. `shards` is the number of parts that workers share,
        by default one for each partition; one that does not divide the partitions needs `uneven`.
        `concurrency_total` is the most calls at a time over all workers: at least one per shard.
        With an `endpoint`, a URL, its workers post the messages there: see `EndpointOptions`.

        With `exist_ok`, an existing one is opened if it is the same. Raises `SubscriptionExists`,
        `UnknownTopic`, `InvalidName` if a pipeline has the name, and `InvalidValue`.
        """
        load, endpoint = delivery_changes(options)
        policy = OnDeadLetter.parse(on_dead_letter)
        new = NewSubscription(
            *(topic, retry, policy, shards, rq_partitions, dlq_partitions),
            filter=filter or None,
            uneven=uneven,
            start=parse_start(start),
            endpoint=endpoint.made(),
            load=load.applied(LoadControl()),
        )
        now_ms = self._clock.now_ms()
        create_subscription(self.backend, name, new, now_ms=now_ms, exist_ok=exist_ok)
        return self.subscription(name)

    def subscription(self, name: str) -> Subscription:
        """Return a subscription. `UnknownSubscription` if there is none."""
        return Subscription(self.backend, name, self._settings, self._clock, self.topic)

    def subscriptions(self) -> list[str]:
        """Return the names of all subscriptions, in order."""
        return subscription_names(self.backend)

    @overload
    def queue(
        self, name: str, type: None = None, *,
        shards: int | None = None, retry: Retry | None = None, on_dead_letter: str | None = None,
        strict: bool = False, from_topic: bool = False, **load: Unpack[LoadOptions],
    ) -> Queue[Any]: ...  # fmt: skip
    @overload
    def queue(
        self, name: str, type: type[T], *,
        shards: int | None = None, retry: Retry | None = None, on_dead_letter: str | None = None,
        strict: bool = False, from_topic: bool = False, **load: Unpack[LoadOptions],
    ) -> Queue[T]: ...  # fmt: skip
    def queue(
        self,
        name: str,
        type: Any = None,
        *,
        shards: int | None = None,
        retry: Retry | None = None,
        on_dead_letter: str | None = None,
        strict: bool = False,
        from_topic: bool = False,
        **load: Unpack[LoadOptions],
    ) -> Queue[Any]:
        """Open a queue; create it if there is none, unless `strict`: then it is `UnknownQueue`.

        `type` is the type of its values. A new queue has this many `shards`, by default 12, which
        consumers share, and the `retry` policy, the `on_dead_letter` and the load control of
        `create_subscription`. Of an existing queue they must be the same if they are given,
        otherwise `QueueExists`. An existing
        topic of the name is `TopicExists`; with `from_topic` it becomes a queue, from its first
        message on, and `UnknownTopic` says that there is none.
        """
        options = QueueOptions(
            shards, retry, on_dead_letter, strict, from_topic, parse_load(**load)
        )
        return open_queue(self, name, type, options, self._clock.now_ms())

    def queues(self) -> list[str]:
        """Return the names of all queues, in order."""
        return queue_names(self.backend)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, its dead letters and its progress.

        Its consumers end with `UnknownQueue`, and so does this if there is none.
        """
        delete_replays(self.backend, name, self._clock.now_ms())
        stored = find(self.backend, name)
        delete_queue(self.backend, name)
        if stored is not None:  # it may have been deleted before
            self._forget_topic(name, stored.definition)

    def transaction(self, *, fence: Fence | None = None) -> OpenTransaction:
        """Return a transaction: pushes to any topics, committed together when its `with` block
        ends."""
        return OpenTransaction(self.backend, self.topic, fence)

    def close(self) -> None:
        """Send the messages that producers still hold, and close the hub. Closing again does
        nothing.

        Consumers of groups and workers of subscriptions get `HubClosed`; close workers before, so
        that the outcomes of their last calls are stored. Once everything is closed, raises the
        error that failed a producer, if neither a push nor `flush` has raised it.
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

    def _topic(self, name: str, stored: StoredDefinition, payload: Payload[T]) -> Topic[T]:
        return Topic(View(self.backend, name, stored), payload, self._settings, self._clock)

    def _payload(self, name: str, type: Any) -> Payload[Any]:
        """Return the conversion of a topic's values; `UnknownTopic` if the topic was deleted."""
        stored = find(self.backend, name)
        if stored is None:
            raise UnknownTopic(name, self.backend.name)
        return Payload(type, stored.definition.content_type)
