"""The messages that a handler pushes by ``delivery.tx``: stored in the commit that acknowledges the
message it was called with, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from tailrace.log.record import OVERHEAD_BYTES, Record
from tailrace.topic.routed_batch import RoutedBatch


class PushedRecord(NamedTuple):
    """A record to append to a topic, which is routed when it is stored."""

    topic: str
    record: Record

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record."""
        record = self.record
        headers = sum(len(name) + len(value) for name, value in (record.headers or {}).items())
        return OVERHEAD_BYTES + len(record.key or b"") + headers + len(record.value)


class PushedBatch(NamedTuple):
    """Records to append to a topic, in order, which are routed when they are stored."""

    topic: str
    batch: RoutedBatch

    @property
    def size_bytes(self) -> int:
        """The size of the records."""
        return self.batch.size_bytes


Pushed: TypeAlias = PushedRecord | PushedBatch


def batches_by_topic(outputs: Iterable[Pushed]) -> dict[str, list[RoutedBatch]]:
    """Return what is appended to each topic, in order."""
    found: dict[str, list[RoutedBatch]] = {}
    records: dict[str, list[Record]] = {}

    def join_records(topic: str) -> None:
        single = records.pop(topic, None)
        if single:
            found.setdefault(topic, []).append(RoutedBatch.of_records(single))

    for output in outputs:
        if isinstance(output, PushedRecord):
            records.setdefault(output.topic, []).append(output.record)
        else:
            join_records(output.topic)
            found.setdefault(output.topic, []).append(output.batch)
    for topic in list(records):
        join_records(topic)
    return found
