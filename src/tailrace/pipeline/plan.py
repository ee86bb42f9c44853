"""What a writer is about to do: which offsets of which partitions, stored before it is done.

A plan is committed before anything is written, and stays open until the ledger holds what came of
it. A driver that finds one open finishes it unchanged. One that failed is replaced, in one commit,
by a plan to deliver what is left of it one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec

from tailrace.backend.contract import Bounds, Log
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Staged
from tailrace.topic.ledger import Progress
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import held_streams, turns
from tailrace.topic.view import View

PIECE_ROWS: Final = 10_000
"""A stream is not cut into smaller pieces than this for the sake of more tasks."""


class PlanKind(StrEnum):
    """How the records of a plan are delivered."""

    BULK = "bulk"
    SINGLE = "one at a time"


class Part(msgspec.Struct, frozen=True):
    """Some offsets of one partition, for one attempt; what is acknowledged of them is left out."""

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


class Plan(msgspec.Struct, frozen=True):
    """An open plan. `id` is unique for ever.

    It is sealed once something is `staged`: that is to be published, whatever happens, and then
    `written` is acknowledged.
    """

    id: str
    kind: PlanKind
    parts: tuple[Part, ...]
    staged: tuple[Staged, ...] = ()
    written: tuple[Part, ...] = ()


class OpenStream(msgspec.Struct, frozen=True):
    """A partition whose turn it is: all that it follows is finished. It is known up to `end`."""

    partition: Partition
    end: int

    def until(self, end: int) -> OpenStream:
        """As if it ended there."""
        return OpenStream(self.partition, min(end, self.end))


def open_streams(view: View, progress: dict[Partition, Progress]) -> list[OpenStream]:
    """The partitions of a topic that a consumer with this progress may read now, in order."""
    definition = view.refresh().definition
    held = {
        stream: bounds
        for stream, bounds in held_streams(view.backend.log, view.topic, definition).items()
        if Partition(view.topic, *stream) in progress  # else it was added since that was read
    }

    def drained(stream: Stream, bounds: Bounds) -> bool:
        return progress[Partition(view.topic, *stream)].mark >= bounds.end

    return [
        OpenStream(Partition(view.topic, *stream), held[stream].end)
        for stream in turns(definition, held, drained).open
    ]


def next_parts(
    log: Log,
    streams: Iterable[OpenStream],
    progress: dict[Partition, Progress],
    batch_rows: int,
    pieces: int,
) -> tuple[Part, ...]:
    """What to deliver next: of each stream the oldest unacknowledged records, at most `batch_rows`
    offsets, in up to `pieces` parts."""
    parts: list[Part] = []
    for partition, end in ((stream.partition, stream.end) for stream in streams):
        start, stop = _reach(log, progress[partition], partition, end, batch_rows)
        parts += [Part(str(partition), *piece) for piece in _cut(start, stop, pieces)]
    return tuple(parts)


def _reach(
    log: Log, progress: Progress, partition: Partition, end: int, batch_rows: int
) -> tuple[int, int]:
    """From the first hole as far as `batch_rows` unacknowledged offsets go.

    A gap wider than a batch, as a new incarnation leaves it, is crossed in one step.
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
    """A range in at most `pieces` parts of about one size, none of them small."""
    count = max(1, min(pieces, (end - start) // PIECE_ROWS))
    bounds = [start + (end - start) * number // count for number in range(count + 1)]
    for one, other in pairwise(bounds):
        if one < other:
            yield one, other


def left_over(parts: Iterable[Part], progress: dict[Partition, Progress]) -> tuple[Part, ...]:
    """Of these parts those that are not wholly acknowledged, from their first hole on."""
    left = []
    for part in parts:
        holes = [h for h in progress[part.where].holes(part.end) if h[1] > part.start]
        if holes:
            left.append(Part(part.partition, max(part.start, holes[0][0]), part.end))
    return tuple(left)


def acknowledged(progress: Progress, offsets: Offsets) -> list[Offsets]:
    """What is acknowledged of a range, as ranges within it."""
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
