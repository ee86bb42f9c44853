"""Reading a topic as it is, or as it grows, so that order per key holds. Nothing is committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tailrace.backend.contract import Follower
from tailrace.errors import InvalidValue, OutOfRange
from tailrace.hub import Hub
from tailrace.message import Message, Partition, Position
from tailrace.operations.edges import Edge, offsets_at
from tailrace.operations.topics import find_topic
from tailrace.topic.reading import READ_BYTES, Read
from tailrace.topic.topic import Topic

WAIT_S: Final = 1.0
"""How long a reading that follows waits before it lets its caller see to other things."""


@dataclass(frozen=True, slots=True)
class Span:
    """What to read: from `starts`, up to `ends` or, without, for ever; of `only` one partition."""

    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int] | None
    only: Partition | None


def span_between(topic: Topic[Any], only: Partition | None, start: Edge, end: Edge | None) -> Span:
    """What lies from one edge up to another; to a position means up to and with that record.

    A position as an edge means its partition alone. `InvalidValue` when two partitions are meant,
    `OutOfRange` when the partition does not reach so far.
    """
    for edge in (start, end):
        if isinstance(edge, Position):
            named = Partition(edge.topic, edge.storage, edge.partition)
            if only not in (None, named):
                raise InvalidValue("partition", str(named), f"one partition, here {only}")
            only = named
    if only is not None:
        if only.topic != topic.name:
            raise InvalidValue("partition", str(only), f"one of topic {topic.name!r}")
        topic.view.definition.check_partition(only)
    if isinstance(start, Position) and isinstance(end, Position) and start.offset > end.offset:
        raise InvalidValue("end", str(end), f"{start} or one behind it")
    ends = None if end is None else _offsets(topic, only, end, behind=1)
    return Span(_offsets(topic, only, start, behind=0), ends, only)


def _offsets(
    topic: Topic[Any], only: Partition | None, edge: Edge, behind: int
) -> dict[Partition, int]:
    if not isinstance(edge, Position):
        return offsets_at(topic, only, edge)
    named = Partition(edge.topic, edge.storage, edge.partition)
    offset = edge.offset + behind
    start, end, _ = topic.view.backend.log.bounds(named)
    if not start <= offset <= end:
        raise OutOfRange(str(named), edge.offset, start, end)
    return {named: offset}


def open_span(hub: Hub, where: str, start: Edge, end: Edge | None) -> tuple[Topic[Any], Span]:
    """The topic and the span that are named by a topic (`orders`) or partition (`orders/1.7`)."""
    only = Partition.parse(where) if "/" in where else None
    topic = find_topic(hub, where if only is None else only.topic)
    return topic, span_between(topic, only, start, end)


def tail(topic: Topic[Any], span: Span) -> Iterator[list[Message[Any]]]:
    """The messages of a span, some at a time, in lineage order; waits for more where it has no end.

    An end is what it was when the span was made: what is pushed meanwhile lies behind it. While
    it waits it gives an empty list now and then, for the caller to see to other things.
    """
    follower = topic.view.backend.follower()
    try:
        for read in _reads(_reader(topic, span), span, follower):
            yield [] if read is None else topic.messages(read.partition, read.records)
    finally:
        follower.close()


def _reads(reader: _Reader, span: Span, follower: Follower) -> Iterator[Read | None]:
    ends = span.ends
    left = None if ends is None else {where for where in ends if _is_open(span, where)}
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


def _is_open(span: Span, where: Partition) -> bool:
    assert span.ends is not None
    return span.only in (None, where) and span.starts.get(where, 0) < span.ends[where]


class _Reader(Protocol):
    def poll(self) -> list[Read]: ...


def _reader(topic: Topic[Any], span: Span) -> _Reader:
    if span.only is None:
        return topic.reader(span.starts)
    return _PartitionReader(topic, span.only, span.starts.get(span.only, 0))


class _PartitionReader:
    """Reads one partition, whatever it follows."""

    def __init__(self, topic: Topic[Any], partition: Partition, start: int) -> None:
        self._log = topic.view.backend.log
        self._partition = partition
        self._next = start

    def poll(self) -> list[Read]:
        while True:
            chunk = self._log.read(self._partition, self._next, READ_BYTES)
            moved = chunk.next_offset > self._next
            self._next = chunk.next_offset
            if chunk.records.num_rows:
                return [Read(self._partition, chunk.records)]
            if not moved:
                return []
