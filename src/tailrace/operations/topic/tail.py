"""Reading a range of a topic in lineage order, and following the topic. Nothing is committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tailrace.backend.contract import Follower
from tailrace.errors import InvalidValue, OutOfRange
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.control import messages_of
from tailrace.message import Message, Partition, Position
from tailrace.operations.topic.lookup import find_topic
from tailrace.topic.offset_search import offsets_at
from tailrace.topic.offset_spec import OffsetSpec
from tailrace.topic.reading import READ_BYTES, Read

WAIT_S: Final = 1.0
"""Seconds that `tail` waits for messages before it yields an empty list."""


@dataclass(frozen=True, slots=True)
class TailRange:
    """A range of a topic: the start and end offset of each partition.

    Without `ends` the topic is followed. With `only`, other partitions are not read.
    """

    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int] | None
    only: Partition | None


def range_between(
    topic: Topic[Any], only: Partition | None, start: OffsetSpec, end: OffsetSpec | None
) -> TailRange:
    """Return the range between two offset specs. A position as the end is included.

    A position restricts the range to its partition. Raise `InvalidValue` if two partitions are
    named, `OutOfRange` for a position outside its partition.
    """
    for spec in (start, end):
        if isinstance(spec, Position):
            named = Partition(spec.topic, spec.storage, spec.partition)
            if only not in (None, named):
                raise InvalidValue("partition", str(named), f"{only}: a range has one partition")
            only = named
    if only is not None:
        if only.topic != topic.name:
            raise InvalidValue("partition", str(only), f"a partition of topic {topic.name!r}")
        topic.view.definition.check_held(only, _named_offset(start, end))
    if isinstance(start, Position) and isinstance(end, Position) and start.offset > end.offset:
        raise InvalidValue("end", str(end), f"{start} or a later position")
    ends = None if end is None else _offsets(topic, only, end, after=1)
    return TailRange(_offsets(topic, only, start, after=0), ends, only)


def _named_offset(*specs: OffsetSpec | None) -> int | None:
    return next((each.offset for each in specs if isinstance(each, Position)), None)


def _offsets(
    topic: Topic[Any], only: Partition | None, spec: OffsetSpec, after: int
) -> dict[Partition, int]:
    if not isinstance(spec, Position):
        return offsets_at(topic.view, only, spec)
    named = Partition(spec.topic, spec.storage, spec.partition)
    offset = spec.offset + after
    start, end, _ = topic.view.backend.log.bounds(named)
    if not start <= offset <= end:
        raise OutOfRange(str(named), spec.offset, start, end)
    return {named: offset}


def open_range(
    hub: Hub, where: str, start: OffsetSpec, end: OffsetSpec | None
) -> tuple[Topic[Any], TailRange]:
    """Return the topic and range of a topic name, ``orders``, or a partition, ``orders/1.7``."""
    only = Partition.parse(where) if "/" in where else None
    topic = find_topic(hub, where if only is None else only.topic)
    return topic, range_between(topic, only, start, end)


def tail(
    topic: Topic[Any], wanted: TailRange, *, control: bool = False
) -> Iterator[list[Message[Any]]]:
    """Yield the messages of a range in batches, in lineage order. Without an end, wait for more.

    The end offsets are fixed when the range is made: later pushes are not included. Control records
    are included only with `control`. While waiting, yield an empty list every `WAIT_S`.
    """
    follower = topic.view.backend.follower()
    try:
        for read in _reads(_reader(topic, wanted, control), wanted, follower):
            yield [] if read is None else topic.messages(read.partition, read.records)
    finally:
        follower.close()


def _reads(reader: _Reader, wanted: TailRange, follower: Follower) -> Iterator[Read | None]:
    ends = wanted.ends
    left = None if ends is None else {where for where in ends if _is_open(wanted, where)}
    while left is None or left:
        follower.arm()
        found = reader.poll()
        for where, records in found:
            if ends is None or left is None:
                yield Read(where, records)
                continue
            offsets = records["offset"].to_numpy()
            kept = int(offsets.searchsorted(ends.get(where, 0)))
            if kept:
                yield Read(where, records.slice(0, kept))
            if offsets[-1] + 1 >= ends.get(where, 0):
                left.discard(where)
        if not found and left is not None:
            return
        if not found:
            follower.wait(WAIT_S)
            yield None


def _is_open(wanted: TailRange, where: Partition) -> bool:
    assert wanted.ends is not None
    return wanted.only in (None, where) and wanted.starts.get(where, 0) < wanted.ends[where]


class _Reader(Protocol):
    def poll(self) -> list[Read]: ...


def _reader(topic: Topic[Any], wanted: TailRange, control: bool) -> _Reader:
    if wanted.only is None:
        return topic.reader(wanted.starts, control=control)
    return _PartitionReader(topic, wanted.only, wanted.starts.get(wanted.only, 0), control)


class _PartitionReader:
    """Reads one partition without waiting for the partitions that it follows."""

    def __init__(self, topic: Topic[Any], partition: Partition, start: int, control: bool) -> None:
        self._log = topic.view.backend.log
        self._partition = partition
        self._next = start
        self._control = control

    def poll(self) -> list[Read]:
        while True:
            chunk = self._log.read(self._partition, self._next, READ_BYTES)
            moved = chunk.next_offset > self._next
            self._next = chunk.next_offset
            records = chunk.records if self._control else messages_of(chunk.records)
            if records.num_rows:
                return [Read(self._partition, records)]
            if not moved:
                return []
