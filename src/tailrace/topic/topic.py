"""A topic as its users hold it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

import pyarrow as pa

from tailrace.backend.contract import Transaction
from tailrace.clock import Clock
from tailrace.duration import parse_duration
from tailrace.errors import Busy, InvalidValue
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Message, Mode, Op, Partition, Range, Receipt, Receipts
from tailrace.payload import Payload
from tailrace.settings import HubSettings
from tailrace.topic.composite import Definition
from tailrace.topic.dedup import Dedup
from tailrace.topic.intake import Headers, Intake, Key, Time
from tailrace.topic.lineage import consistent
from tailrace.topic.producer import Producer
from tailrace.topic.producer_name import ProducerName
from tailrace.topic.reading import LineageReader, batches_between, record_at
from tailrace.topic.scaling import Plan, plan_scale
from tailrace.topic.shipment import send
from tailrace.topic.view import View, commit_following

T = TypeVar("T")

# By number: several times faster than to call the enums.
_MODES = tuple(Mode)
_OPS = tuple(Op)


@dataclass(frozen=True, slots=True)
class StorageTopicInfo:
    """A storage topic: its shape, whether it is sealed, and what each partition holds."""

    index: int
    partitions: int
    k: int
    base: int
    sealed: bool
    starts: list[int]
    ends: list[int]


class Topic(Generic[T]):
    """A composite topic: ordered per key, and re-scalable while it is used.

    May be shared by threads and carried over a fork. It asks the hub for its definition only when
    that matters: a push that comes behind a switch is refused, and goes to the new storage topic.
    """

    def __init__(
        self, view: View, payload: Payload[T], settings: HubSettings, clock: Clock
    ) -> None:
        self.view = view
        self.intake = Intake(view.topic, payload, settings, clock)
        self.payload = payload
        self.settings = settings
        self.clock = clock
        self._dedup = Dedup(view, settings.dedup_window // timedelta(milliseconds=1), clock)

    @property
    def name(self) -> str:
        """The name."""
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
        """Store one message, behind those of its key that were stored before; where it landed.

        A message without a key goes to any partition. With a `dedup_id` that was pushed to this
        topic within the setting `dedup_window`, 5 minutes by default, nothing is stored and the
        receipt is that of the first push.
        """
        record = self.intake.record(value, key, headers, timestamp)
        if dedup_id is not None:
            return self._dedup.push(record, dedup_id)
        view = self.view

        def build() -> Transaction:
            target = view.target
            return Transaction(((target.partition_of(record.key), (record,)),), since=target.since)

        [landed] = commit_following(view.backend, {view.topic: view}, build)
        return Receipt(*landed.partition, landed.start, record.timestamp)

    def push_many(self, messages: Iterable[tuple[Key, T]]) -> Receipts:
        """Store messages, given as keys and values, in their order: all of them or none."""
        pairs = messages if isinstance(messages, list) else list(messages)
        if not pairs:
            return Receipts(0, _no_receipt)
        shipment = self.intake.pairs(pairs)
        return shipment.receipts(send(self.view, shipment))

    def append(self, batch: pa.RecordBatch) -> list[Range]:
        """Store Arrow columns, all rows or none, and say where they landed, partition by partition.

        A column `value` and, if wanted, `key`, `timestamp`, `headers`, `mode` and `op`.
        """
        given: object = batch
        if not isinstance(given, pa.RecordBatch):
            found = type(given).__name__
            raise InvalidValue("batch", found, "a pyarrow.RecordBatch; a table has to_batches()")
        return send(self.view, self.intake.columns(batch)) if batch.num_rows else []

    def producer(
        self,
        *,
        linger: timedelta | str | None = None,
        batch_bytes: int | None = None,
        name: str | None = None,
    ) -> Producer[T]:
        """A pipelined producer: pushes are taken at once and sent in batches, in order.

        A batch is sent when it has `batch_bytes` or its first message has waited for `linger`; both
        are settings too. A producer with a name is idempotent, and takes the name from whoever had
        it.
        """
        wait = self.settings.linger if linger is None else parse_duration(linger, "linger")
        size_bytes = self.settings.batch_bytes if batch_bytes is None else batch_bytes
        if size_bytes < 1:
            raise InvalidValue("batch_bytes", size_bytes, "1 or more")
        view = self.view
        held = None
        if name is not None:
            held = ProducerName(view.backend, view.topic, view.definition.identity, name)
        return Producer(
            view, self.intake, linger_s=wait.total_seconds(), batch_bytes=size_bytes, name=held
        )

    def read(self, storage: int, partition: int, offset: int) -> Message[T]:
        """The message at an offset; `OutOfRange` with what is valid when there is none."""
        where = self._partition(storage, partition)
        return self._message(where, record_at(self.view.backend.log, where, offset))

    def batches(
        self, storage: int, partition: int, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Records of a partition from `start` to `end`, or to its end at this call, in columns."""
        where = self._partition(storage, partition)
        return batches_between(self.view.backend.log, where, start, end)

    def messages(self, partition: Partition, records: pa.RecordBatch) -> list[Message[T]]:
        """Columns of a partition as messages."""
        return [self._message(partition, record) for record in records_of(records)]

    def reader(self, starts: Mapping[Partition, int] | None = None) -> LineageReader:
        """A reader of all partitions in lineage order, from `starts` or from the oldest on."""
        return LineageReader(self.view, starts or {})

    def _message(self, partition: Partition, record: Record) -> Message[T]:
        offset, timestamp_ms, mode, op, key, headers, data = record
        return Message(
            *partition,
            offset,
            timestamp_ms,
            _MODES[mode],
            _OPS[op],
            key,
            headers or {},
            data,
            self.payload.decode_message,
        )

    def _partition(self, storage: int, number: int) -> Partition:
        partition = Partition(self.name, storage, number)
        if not 0 <= storage <= self.view.definition.last:
            self.view.refresh()
        return self.view.definition.check_partition(partition)

    @property
    def storage_topics(self) -> list[StorageTopicInfo]:
        """Its storage topics, oldest first, as they are now."""
        definition = self.view.refresh().definition
        found = []
        for index, shape in enumerate(definition.storage):
            bounds = self.view.backend.log.bounds_of(definition.storage_topic(self.name, index))
            found.append(
                StorageTopicInfo(
                    index,
                    shape.partitions,
                    shape.k,
                    shape.base,
                    all(each.sealed for each in bounds),
                    [each.start for each in bounds],
                    [each.end for each in bounds],
                )
            )
        return found

    @property
    def produce_pointer(self) -> int:
        """The index of the storage topic that takes pushes now."""
        return self.view.refresh().definition.pointer

    def route(self, key: Key) -> int:
        """The partition that a key's messages go to, in the storage topic at the pointer."""
        self.view.refresh()
        found = self.intake.key(key)
        if not found:
            raise InvalidValue("key", key, "one that is not empty: messages without go anywhere")
        return self.view.target.number_of(found)

    def follows(self, partition: Partition | str) -> set[Partition]:
        """The partitions that must be finished before this one may start."""
        found = Partition.parse(partition) if isinstance(partition, str) else partition
        if found.topic != self.name:
            raise InvalidValue("partition", str(found), f"one of topic {self.name!r}")
        self._partition(found.storage, found.number)
        return self.view.definition.follows(found)

    def consistent(self, shards: int, from_storage: int, to_storage: int) -> bool:
        """Whether every key has the same of `shards` shards in both storage topics."""
        definition = self.view.refresh().definition
        for storage in (from_storage, to_storage):
            definition.storage_topic(self.name, storage)
        shapes = definition.storage[from_storage], definition.storage[to_storage]
        return consistent(definition.router, shapes, shards)

    def add_storage_topic(self, partitions: int, *, any_count: bool = False) -> int:
        """Append a storage topic, for the pointer to be switched to later; its index."""
        _, after = self.view.change(lambda now: now.added(partitions, any_count=any_count))
        return after.last

    def switch_produce(self) -> int:
        """Let the next storage topic take the pushes, and seal the present one; the new pointer.

        Both in one commit. At the last storage topic nothing happens. When somebody else switches
        at the same time, one switch is made, not two.
        """
        pointer = self.produce_pointer
        _, after = self.view.change(lambda now: now.switched() if now.pointer == pointer else now)
        return after.pointer

    def plan_scale(self, partitions: int, *, any_count: bool = False) -> Plan:
        """What `scale` would do, and what that means. Changes nothing."""
        definition = self.view.refresh().definition
        present = definition.storage_topic(self.name, definition.pointer)
        held = self.view.backend.log.bounds_of(present)
        waiting = sum(bounds.end - bounds.start for bounds in held)
        return plan_scale(self.name, definition, partitions, any_count, waiting)

    def scale(self, partitions: int, *, any_count: bool = False) -> Plan:
        """Add a storage topic and switch to it, in one commit; the plan that was followed.

        A topic that has so many partitions stays as it is. When somebody else switches at the same
        time, nothing is done and it is `Busy`: the plan would not be what was made of it.
        """
        plan = self.plan_scale(partitions, any_count=any_count)
        if plan.after == plan.before:
            return plan

        def scaled(now: Definition) -> Definition:
            after = now.scaled(partitions, any_count=any_count)
            if after.pointer != plan.storage:
                raise Busy(
                    f"topic {self.name!r} was changed by somebody else", "look, then scale it again"
                )
            return after

        self.view.change(scaled)
        return plan


def _no_receipt(index: int) -> Receipt:
    raise IndexError(index)
