"""Where a reading begins and ends, in writing: `earliest`, `latest`, `-100`, a time, a position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import InvalidValue
from tailrace.message import Partition, Position
from tailrace.topic.edge import Extreme, Moment, offset_at, parse_place
from tailrace.topic.moment import end_before
from tailrace.topic.reading import batches_within
from tailrace.topic.topic import Topic

LAST_MAX: Final = 1_000_000
"""How many of the newest messages may be asked for."""

FORMS: Final = "earliest, latest, -100, @2026-01-01T00:00Z, or a position such as orders/1.7@42"


@dataclass(frozen=True, slots=True)
class Last:
    """Before the newest so many messages of a topic."""

    count: int


Edge: TypeAlias = Extreme | Last | Moment | Position
"""A place in a topic. A position is a place in one partition, and speaks of that one alone."""


def parse_edge(text: str, what: str = "place") -> Edge:
    """Read an edge; `InvalidValue`, which calls it `what`, lists the forms."""
    try:
        return _parse(text)
    except InvalidValue as error:
        raise InvalidValue(what, text, error.valid) from None


def _parse(text: str) -> Edge:
    place = parse_place(text)
    if place is not None:
        return place
    if text.startswith("-") and text[1:].isdecimal() and 1 <= int(text[1:]) <= LAST_MAX:
        return Last(int(text[1:]))
    if "/" in text:
        return Position.parse(text)
    raise InvalidValue("place", text, FORMS)


def offsets_at(
    topic: Topic[Any], only: Partition | None, edge: Extreme | Last | Moment
) -> dict[Partition, int]:
    """The offset of an edge in every partition of a topic, or in one as if that were all.

    The newest storage topic is looked at first, so that what is pushed meanwhile lies above.
    """
    log = topic.view.backend.log
    offsets: dict[Partition, int] = {}
    left = edge.count if isinstance(edge, Last) else 0
    for partitions in _storage_topics(topic) if only is None else [{only: log.bounds(only)}]:
        if isinstance(edge, Last):
            found, taken = _last(log, partitions, left)
            offsets |= found
            left -= taken
        else:
            offsets |= {where: offset_at(log, where, b, edge) for where, b in partitions.items()}
    return offsets


def _storage_topics(topic: Topic[Any]) -> Iterator[dict[Partition, Bounds]]:
    """What each partition holds, storage topic by storage topic, the newest first."""
    definition = topic.view.refresh().definition
    for storage in reversed(range(len(definition.storage))):
        bounds = topic.view.backend.log.bounds_of(definition.storage_topic(topic.name, storage))
        yield {Partition(topic.name, storage, number): b for number, b in enumerate(bounds)}


def _last(
    log: Log, partitions: dict[Partition, Bounds], count: int
) -> tuple[dict[Partition, int], int]:
    """The offsets from which a storage topic holds its newest `count` messages, and how many."""
    if count == 0:
        return {where: bounds.end for where, bounds in partitions.items()}, 0
    names = list(partitions)
    found = [_newest(log, where, partitions[where], count) for where in names]
    times = np.concatenate([times for times, _ in found])
    owners = np.repeat(np.arange(len(names)), [len(times) for times, _ in found])
    # Stable, so that among equal times the later of a partition stays the later.
    kept = np.sort(np.argsort(times, kind="stable")[-count:])
    counts = np.bincount(owners[kept], minlength=len(names)).tolist()
    offsets = {}
    for where, (_, newest), taken in zip(names, found, counts, strict=True):
        offsets[where] = int(newest[-taken]) if taken else partitions[where].end
    return offsets, len(kept)


def _newest(log: Log, partition: Partition, bounds: Bounds, count: int) -> tuple[Any, Any]:
    """Times, made to rise, and offsets of the newest `count` records of a partition."""
    chunks: list[pa.RecordBatch] = []
    left, high = count, bounds.end
    while left > 0 and high > bounds.start:
        low = max(bounds.start, high - left)
        found = list(batches_within(log, partition, low, high))
        chunks = found + chunks
        left -= sum(chunk.num_rows for chunk in found)
        high = low if found else end_before(log, partition, bounds.start, low)
    if not chunks:
        empty = np.array([], np.int64)
        return empty, empty
    times = np.concatenate([_times(chunk) for chunk in chunks])
    offsets = np.concatenate([chunk["offset"].to_numpy() for chunk in chunks])
    return np.maximum.accumulate(times), offsets


def _times(records: pa.RecordBatch) -> Any:
    return records["timestamp"].view(pa.int64()).to_numpy()
