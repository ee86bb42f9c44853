"""A topic as its users hold it: push, read, consume, scale."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tailrace.backend.contract import Transaction
from tailrace.backend.pickling import Unpicklable
from tailrace.clock import Clock
from tailrace.duration import parse_duration
from tailrace.errors import Busy, InvalidValue, UnknownTopic
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.consumer.join import consume
from tailrace.group.consumer.options import Ack, ConsumerOptions, Until
from tailrace.group.store.start import StartLike
from tailrace.log.columns import records_of
from tailrace.log.control import messages_of
from tailrace.log.record import OVERHEAD_BYTES, Record
from tailrace.log.redelivered import origin_of, shown_headers
from tailrace.message import Message, Mode, Op, Partition, Range, Receipt, Receipts
from tailrace.payload import Payload
from tailrace.settings import HubSettings
from tailrace.topic.composite import Definition
from tailrace.topic.dedup import Dedup
from tailrace.topic.envelope import Envelope
from tailrace.topic.internal_topics import check_not_queue
from tailrace.topic.lineage import consistent
from tailrace.topic.producer import Producer
from tailrace.topic.producer_name import ProducerName
from tailrace.topic.reading import LineageReader, batches_between, record_at
from tailrace.topic.record_builder import Headers, Key, RecordBuilder, Time
from tailrace.topic.routed_batch import RoutedBatch, send
from tailrace.topic.scaling import Plan, plan_scale
from tailrace.topic.storage_topics import StorageTopicInfo, read_storage_topics
from tailrace.topic.trimming import Trim, plan_trim, trim
from tailrace.topic.view import View, commit_following

T = TypeVar("T")

# Indexing by number is several times faster than calling the enums.
_MODES = tuple(Mode)
_OPS = tuple(Op)


class Topic(Unpicklable, Generic[T]):
    """A composite topic: ordered per key, re-scalable while it is used, consumed by groups.

    May be shared by threads and used after a fork. A push does not read the topic's definition: the
    log refuses a push to a sealed storage topic, and the push then goes to the new one.
    """

    def __init__(
        self, view: View, payload: Payload[T], settings: HubSettings, clock: Clock
    ) -> None:
        self.view = view
        order_by = view.definition.order_by
        self.builder = RecordBuilder(view.topic, payload, settings, clock, order_by)
        self.payload = payload
        self.settings = settings
        self.clock = clock
        self._dedup = Dedup(view, settings.dedup_window // timedelta(milliseconds=1), clock)

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.view.topic

    def __repr__(self) -> str:
        return f"<Topic {self.name} of {self.view.backend.name}>"

    def push(
        self,
        value: T,
        *,
        key: Key = None,
        headers: Headers = None,
        timestamp: Time = None,
        dedup_id: str | None = None,
    ) -> Receipt:
        """Store one message after the earlier ones of its key, and return its position.

        A message without a key goes to any partition. If the topic has an `order_by`, the key is
        made from the message. If the same `dedup_id` was pushed to this
        topic within the setting `dedup_window` (5 minutes by default), nothing is stored and the
        receipt of the first push is returned.
        """
        check_not_queue(self.name)
        record = self.builder.record(value, key, headers, timestamp)
        if dedup_id is not None:
            return self._dedup.push(record, dedup_id)
        view = self.view

        def build() -> Transaction:
            target = view.target
            return Transaction(((target.partition_of(record.key), (record,)),), since=target.since)

        began, pushes = time.monotonic(), view.pushes
        try:
            [stored] = commit_following(view.backend, {view.topic: view}, build)
        except BaseException:
            pushes.failed()
            raise
        size_bytes = OVERHEAD_BYTES + len(record.key or b"") + len(record.value)
        pushes.pushed(1, size_bytes, time.monotonic() - began)
        return Receipt(*stored.partition, stored.start, record.timestamp)

    def push_many(self, messages: Iterable[tuple[Key, T]] | Iterable[Envelope[T]]) -> Receipts:
        """Store messages, given as pairs of key and value or as `Envelope`s, in this order: all of
        them or none."""
        check_not_queue(self.name)
        given: list[Any] = messages if isinstance(messages, list) else list(messages)
        if not given:
            return Receipts(0, _no_receipt)
        enveloped = isinstance(given[0], Envelope)
        batch = self._enveloped(given) if enveloped else self.builder.pairs(given)
        return batch.receipts(send(self.view, batch))

    def _enveloped(self, envelopes: list[Any]) -> RoutedBatch:
        for each in envelopes:
            if not isinstance(each, Envelope):
                raise InvalidValue(
                    "messages", each, "envelopes only, or pairs of key and value only"
                )
        return RoutedBatch.of_records(
            [self.builder.record(e.value, e.key, e.headers, e.timestamp) for e in envelopes]
        )

    def append(self, batch: pa.RecordBatch) -> list[Range]:
        """Store Arrow columns, all rows or none, and return their offsets, partition by partition.

        The batch has a column `value` and optionally `key`, `timestamp`, `headers`, `mode`, `op`.
        """
        given: object = batch
        if not isinstance(given, pa.RecordBatch):
            found = type(given).__name__
            raise InvalidValue("batch", found, "a pyarrow.RecordBatch; a table has to_batches()")
        check_not_queue(self.name)
        return send(self.view, self.builder.columns(batch)) if batch.num_rows else []

    def producer(
        self,
        *,
        linger: timedelta | str | None = None,
        batch_bytes: int | None = None,
        name: str | None = None,
    ) -> Producer[T]:
        """Return a pipelined producer: it queues pushes and sends them in batches, in order.

        A batch is sent when it has `batch_bytes` or its first message has waited for `linger`; both
        are settings too. A producer with a name is idempotent, and fences the previous producer of
        that name.
        """
        check_not_queue(self.name)
        wait = self.settings.linger if linger is None else parse_duration(linger, "linger")
        size_bytes = self.settings.batch_bytes if batch_bytes is None else batch_bytes
        if size_bytes < 1:
            raise InvalidValue("batch_bytes", size_bytes, "1 or more")
        view = self.view
        held = None
        if name is not None:
            held = ProducerName(view.backend, view.topic, view.definition.identity, name)
        return Producer(
            view, self.builder, linger_s=wait.total_seconds(), batch_bytes=size_bytes, name=held
        )

    def tail(
        self,
        *,
        group: str,
        start: StartLike = "earliest",
        ack: Ack = "auto",
        attempts: int | None = None,
        until: Until = None,
        limit: int | None = None,
        idle_timeout: timedelta | str | None = None,
        handler_timeout: timedelta | str | None = None,
        batch_size: int = 10_000,
        control: bool = False,
        id: str | None = None,
    ) -> Consumer[T]:
        """Join a group as a consumer: each message goes to one consumer, in order per key.

        To scale, call this in more threads or processes. `start` is where a new group begins:
        ``"earliest"``, ``"latest"``, an aware datetime, a position, or offsets by partition.
        ``until="end"`` ends the loop at the end offsets of when it began, `limit` after that number
        of messages, `idle_timeout` when no message came for that time. With ``ack="manual"`` the
        caller calls `Delivery.ack` or `Delivery.nack`. `handler_timeout` is how long one message
        may take when its partition is to move to another consumer. With `control`, control records
        of a pipeline are delivered too. `id` is the prefix of the consumer's name.
        """
        return consume(
            self.view.backend,
            group,
            self.name,
            start,
            ConsumerOptions.of(
                self.settings,
                id=id,
                ack=ack,
                until=until,
                limit=limit,
                idle_timeout=idle_timeout,
                attempts=attempts,
                handler_timeout=handler_timeout,
                batch_size=batch_size,
                control=control,
            ),
            decoder=lambda _: self.payload.decode_message,
            settings=self.settings,
            clock=self.clock,
        )

    def read(self, storage: int, partition: int, offset: int) -> Message[T]:
        """Return the message at an offset; `OutOfRange` if there is none, `StorageDeleted` if its
        storage topic was deleted."""
        where = self._partition(storage, partition, offset)
        with self._deletion_named(where, offset):
            return self._message(where, record_at(self.view.backend.log, where, offset))

    def batches(
        self,
        storage: int,
        partition: int,
        start: int = 0,
        end: int | None = None,
        *,
        control: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition from `start` up to, not including, `end`, in columns.

        Without an `end`, up to the partition's end offset at the time of this call. Control records
        are yielded only with `control`. `StorageDeleted` if the storage topic was deleted, also if
        it was deleted meanwhile.
        """
        where = self._partition(storage, partition, start)
        with self._deletion_named(where, start):
            found = batches_between(self.view.backend.log, where, start, end)
        return self._read_on(where, start, found if control else map(messages_of, found))

    def _read_on(
        self, where: Partition, start: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        with self._deletion_named(where, start):
            yield from (batch for batch in batches if batch.num_rows)

    def messages(self, partition: Partition, records: pa.RecordBatch) -> list[Message[T]]:
        """Convert columns of a partition to messages."""
        return [self._message(partition, record) for record in records_of(records)]

    def reader(
        self, starts: Mapping[Partition, int] | None = None, *, control: bool = False
    ) -> LineageReader:
        """Return a reader of all partitions in lineage order, from `starts` or the oldest.

        With `control`, it returns control records too.
        """
        return LineageReader(self.view, starts or {}, control=control)

    def _message(self, partition: Partition, record: Record) -> Message[T]:
        offset, timestamp_ms, mode, op, key, headers, data = record
        message = Message(
            *partition,
            offset,
            timestamp_ms,
            _MODES[mode],
            _OPS[op],
            key,
            shown_headers(headers) if headers else {},
            data,
            self.payload.decode_message,
        )
        if headers:
            message.origin = origin_of(headers)
        return message

    def _partition(self, storage: int, number: int, offset: int | None = None) -> Partition:
        """Return a partition that exists; one that was deleted is `StorageDeleted` if it is known
        to be."""
        partition = Partition(self.name, storage, number)
        if not 0 <= storage <= self.view.definition.last:
            self.view.refresh()
        return self.view.definition.check_held(partition, offset)

    @contextmanager
    def _deletion_named(self, where: Partition, offset: int) -> Iterator[None]:
        """Raise `StorageDeleted`, not `UnknownTopic`, if only the storage topic was deleted."""
        try:
            yield
        except UnknownTopic:
            self.view.refresh().definition.check_held(where, offset)
            raise

    @property
    def storage_topics(self) -> list[StorageTopicInfo]:
        """The storage topics that exist now, oldest first. Their indices have holes where some were
        deleted."""
        return read_storage_topics(self.view)

    @property
    def produce_pointer(self) -> int:
        """The index of the storage topic that pushes go to now."""
        return self.view.refresh().definition.pointer

    def route(self, key: Key) -> int:
        """Return the partition that a key's messages go to, in the storage topic at the pointer."""
        self.view.refresh()
        found = self.builder.key(key)
        if not found:
            raise InvalidValue(
                "key", key, "a key that is not empty; messages without a key go to any partition"
            )
        return self.view.target.number_of(found)

    def follows(self, partition: Partition | str) -> set[Partition]:
        """Return the partitions that a consumer must finish before it may start this one."""
        found = Partition.parse(partition) if isinstance(partition, str) else partition
        if found.topic != self.name:
            raise InvalidValue("partition", str(found), f"one of topic {self.name!r}")
        return self.view.refresh().definition.follows(found)

    def consistent(self, shards: int, from_storage: int, to_storage: int) -> bool:
        """True if every key maps to the same one of `shards` shards in both storage topics."""
        definition = self.view.refresh().definition
        for storage in (from_storage, to_storage):
            definition.storage_topic(self.name, storage)
        shapes = definition.storage[from_storage], definition.storage[to_storage]
        return consistent(definition.router, shapes, shards)

    def add_storage_topic(self, partitions: int, *, any_count: bool = False) -> int:
        """Append a storage topic, to be switched to later, and return its index."""
        check_not_queue(self.name)
        _, after = self.view.change(lambda now: now.added(partitions, any_count=any_count))
        return after.last

    def switch_produce(self) -> int:
        """Direct pushes to the next storage topic and seal the present one, in one commit.

        Returns the new pointer. At the last storage topic nothing happens. If another process
        switches at the same time, the pointer moves once, not twice.
        """
        check_not_queue(self.name)
        pointer = self.produce_pointer
        _, after = self.view.change(lambda now: now.switched() if now.pointer == pointer else now)
        return after.pointer

    def plan_scale(self, partitions: int, *, any_count: bool = False) -> Plan:
        """Plan what `scale` would do and its consequences. Changes nothing."""
        check_not_queue(self.name)
        definition = self.view.refresh().definition
        present = definition.storage_topic(self.name, definition.pointer)
        held = self.view.backend.log.bounds_of(present)
        waiting = sum(bounds.end - bounds.start for bounds in held)
        return plan_scale(self.name, definition, partitions, any_count, waiting)

    def scale(self, partitions: int, *, any_count: bool = False) -> Plan:
        """Add a storage topic and switch to it, in one commit; returns the executed plan.

        A topic that already has this number of partitions stays as it is. `Busy`, with nothing
        changed, if another process changes the topic at the same time: the plan would not fit.
        """
        plan = self.plan_scale(partitions, any_count=any_count)
        if plan.after == plan.before:
            return plan

        def scaled(now: Definition) -> Definition:
            after = now.scaled(partitions, any_count=any_count)
            if after.pointer != plan.storage:
                raise Busy(
                    f"topic {self.name!r} was changed by another process",
                    f"check it with tailrace topic show {self.name}, then scale again",
                )
            return after

        self.view.change(scaled)
        return plan

    def plan_trim(self, before: int) -> Trim:
        """Plan what `trim` would delete, and which consumers have not finished it. Changes
        nothing."""
        check_not_queue(self.name)
        return plan_trim(self.view, before)

    def trim(self, before: int, *, force: bool = False) -> Trim:
        """Delete all storage topics before the one of index `before`, with their messages.

        They are sealed. `InvalidValue` if a consumer has not finished them, or if the topic has no
        consumer, unless `force`: then messages are lost unread. Returns what was deleted.
        """
        check_not_queue(self.name)
        return trim(self.view, before, force=force)


def _no_receipt(index: int) -> Receipt:
    raise IndexError(index)
