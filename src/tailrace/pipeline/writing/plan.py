"""Plans: the offsets that a writer is about to write, stored before it writes them.

A plan is committed before its records are written, and stays open until the ledger has the result.
A driver that finds an open plan finishes it unchanged. A plan that failed is replaced, in one
commit, by a plan that delivers the rest one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Bounds, Log
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Staged
from tailrace.topic.ledger import Progress
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import find_open_streams, held_streams
from tailrace.topic.view import View

PIECE_ROWS: Final = 10_000
"""The smallest number of offsets of a part, if a partition is split for more tasks."""


class PlanKind(StrEnum):
    """How the records of a plan are delivered."""

    BULK = "bulk"
    SINGLE = "one at a time"


class PlanPart(msgspec.Struct, frozen=True):
    """A range of offsets of one partition, for one attempt. Acknowledged offsets are left out."""

    partition: str
    start: int
    end: int

    @property
    def where(self) -> Partition:
        """The partition as a value."""
        return Partition.parse(self.partition)

    @property
    def offsets(self) -> Offsets:
        """The offsets as a value."""
        return Offsets(self.start, self.end)


class StagedPart(NamedTuple):
    """Staged rows of a partition."""

    partition: str
    staged: Staged

    @property
    def part(self) -> PlanPart:
        """The offsets of the rows."""
        return PlanPart(self.partition, *self.staged.offsets)


class WritePlan(msgspec.Struct, frozen=True):
    """An open plan. `id` is unique for ever.

    A plan is sealed once it has `staged` files: they will be published, even after a crash, and
    then `written` is acknowledged.
    """

    id: str
    kind: PlanKind
    parts: tuple[PlanPart, ...]
    staged: tuple[Staged, ...] = ()
    written: tuple[PlanPart, ...] = ()


class OpenStream(msgspec.Struct, frozen=True):
    """A partition that may be read, because all that it follows is finished.

    `end` is its end offset.
    """

    partition: Partition
    end: int

    def until(self, end: int) -> OpenStream:
        """Return the stream, with an end offset of at most `end`."""
        return OpenStream(self.partition, min(end, self.end))


def sealed_starts(plan: WritePlan) -> dict[Partition, int]:
    """Return where each partition of a sealed plan starts; empty if the plan is not sealed.

    Some of its staged rows may be published. So the plan is dropped as a whole: the writer is
    rewound to the start of each partition.
    """
    starts: dict[Partition, int] = {}
    for part in plan.written if plan.staged else ():
        starts[part.where] = min(part.start, starts.get(part.where, part.start))
    return starts


def open_streams(view: View, progress: dict[Partition, Progress]) -> list[OpenStream]:
    """Return the partitions that a consumer with this progress may read now, in order."""
    definition = view.refresh().definition
    # Partitions that were added after the progress was read have no entry in it.
    held = {
        stream: bounds
        for stream, bounds in held_streams(view.backend.log, view.topic, definition).items()
        if Partition(view.topic, *stream) in progress
    }

    def drained(stream: Stream, bounds: Bounds) -> bool:
        return progress[Partition(view.topic, *stream)].mark >= bounds.end

    return [
        OpenStream(Partition(view.topic, *stream), held[stream].end)
        for stream in find_open_streams(definition, held, drained).open
    ]


def next_parts(
    log: Log,
    streams: Iterable[OpenStream],
    progress: dict[Partition, Progress],
    batch_rows: int,
    pieces: int,
) -> tuple[PlanPart, ...]:
    """Return the parts of the next plan.

    Each stream contributes its oldest unacknowledged records, at most `batch_rows` offsets, in at
    most `pieces` parts.
    """
    parts: list[PlanPart] = []
    for partition, end in ((stream.partition, stream.end) for stream in streams):
        start, stop = _next_range(log, progress[partition], partition, end, batch_rows)
        parts += [PlanPart(str(partition), *piece) for piece in _cut(start, stop, pieces)]
    return tuple(parts)


def _next_range(
    log: Log, progress: Progress, partition: Partition, end: int, batch_rows: int
) -> tuple[int, int]:
    """Return the range from the first hole that has `batch_rows` unacknowledged offsets.

    A gap wider than a batch, as a new incarnation leaves it, is skipped in one step.
    """
    start = stop = progress.mark
    left = batch_rows
    for first, after in progress.holes(end):
        if after - first > left:
            first = _first_record(log, partition, first, after)
        stop = min(after, first + left)
        left -= stop - first
        if not left:
            break
    return start, stop


def _first_record(log: Log, partition: Partition, start: int, end: int) -> int:
    while start < end:
        chunk = log.read(partition, start, 1, end)
        if chunk.records.num_rows:
            return int(chunk.records["offset"][0].as_py())
        if chunk.next_offset <= start:
            return end
        start = chunk.next_offset
    return start


def _cut(start: int, end: int, pieces: int) -> Iterator[tuple[int, int]]:
    """Yield the range in at most `pieces` parts of about the same size."""
    count = max(1, min(pieces, (end - start) // PIECE_ROWS))
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    for one, other in pairwise(bounds):
        if one < other:
            yield one, other


def unacknowledged_parts(
    parts: Iterable[PlanPart], progress: dict[Partition, Progress]
) -> tuple[PlanPart, ...]:
    """Return the parts that are not fully acknowledged, from their first hole on."""
    left = []
    for part in parts:
        holes = [h for h in progress[part.where].holes(part.end) if h[1] > part.start]
        if holes:
            left.append(PlanPart(part.partition, max(part.start, holes[0][0]), part.end))
    return tuple(left)


def without_parts(parts: Iterable[PlanPart], removed: Sequence[PlanPart]) -> tuple[PlanPart, ...]:
    """Return parts without the offsets of others."""
    left = tuple(parts)
    for other in removed:
        left = tuple(
            PlanPart(part.partition, start, end)
            for part in left
            for start, end in _without(part, other)
            if start < end
        )
    return left


def _without(part: PlanPart, other: PlanPart) -> Iterable[tuple[int, int]]:
    if part.partition != other.partition:
        return ((part.start, part.end),)
    below, above = (part.start, min(part.end, other.start)), (max(part.start, other.end), part.end)
    return below, above


def acknowledged(progress: Progress, offsets: Offsets) -> list[Offsets]:
    """Return the acknowledged ranges within a range."""
    held = []
    at = offsets.start
    for first, after in progress.holes(offsets.end):
        first, after = max(first, offsets.start), min(after, offsets.end)
        if first >= after:
            continue
        if at < first:
            held.append(Offsets(at, first))
        at = after
    if at < offsets.end:
        held.append(Offsets(at, offsets.end))
    return held
