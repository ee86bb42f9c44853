"""Finding the offsets of an offset spec in the partitions of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.backend.contract import Bounds, Log
from tailrace.message import Partition
from tailrace.topic.offset_spec import AtTime, Extreme, Newest
from tailrace.topic.open_streams import held_storage_topics
from tailrace.topic.reading import batches_within
from tailrace.topic.view import View

_PROBE_BYTES: Final = 1


def offsets_at(
    view: View, only: Partition | None, spec: Extreme | AtTime | Newest
) -> dict[Partition, int]:
    """Return the offset of a spec in every partition of a topic, or in partition `only` as if the
    topic had no other.

    Reads the newest storage topic first, so that messages pushed meanwhile are above the offsets.
    """
    log = view.backend.log
    offsets: dict[Partition, int] = {}
    left = spec.count if isinstance(spec, Newest) else 0
    for partitions in storage_topics(view) if only is None else [{only: log.bounds(only)}]:
        if isinstance(spec, Newest):
            found, count = _newest(log, partitions, left)
            offsets |= found
            left -= count
        else:
            offsets |= {where: offset_at(log, where, b, spec) for where, b in partitions.items()}
    return offsets


def offset_at(log: Log, partition: Partition, bounds: Bounds, spec: Extreme | AtTime) -> int:
    """Return the offset of a spec in one partition, within its bounds."""
    if spec is Extreme.EARLIEST:
        return bounds.start
    if spec is Extreme.LATEST:
        return bounds.end
    return _offset_at_time(log, partition, bounds, spec.time_ms)


def first_between(log: Log, partition: Partition, start: int, end: int) -> pa.RecordBatch | None:
    """Return the first record at `start` or later, before `end`, in a batch with some that follow;
    None if there is none."""
    return next(batches_within(log, partition, start, end, _PROBE_BYTES), None)


def end_before(log: Log, partition: Partition, start: int, high: int) -> int:
    """Return the offset after the last record below `high`, or `start`; found by bisection."""
    low = start
    while low < high:
        middle = (low + high) // 2
        first = first_between(log, partition, middle, high)
        if first is None:
            high = middle
        else:
            low = int(first["offset"][0].as_py()) + 1
    return low


def _offset_at_time(log: Log, partition: Partition, bounds: Bounds, time_ms: int) -> int:
    """Return the first offset of this timestamp or a later one, or the end offset.

    Found by bisection, which assumes that timestamps rise within a partition, as they do unless
    producers set them.
    """
    low, high = bounds.start, bounds.end
    while low < high:
        middle = (low + high) // 2
        first = first_between(log, partition, middle, high)
        if first is None or first["timestamp"].view(pa.int64())[0].as_py() >= time_ms:
            high = middle
        else:
            low = int(first["offset"][0].as_py()) + 1
    return low


def storage_topics(view: View) -> Iterator[dict[Partition, Bounds]]:
    """Yield the bounds of each partition, storage topic by storage topic, the newest first."""
    definition = view.refresh().definition
    for storage, bounds in held_storage_topics(view.backend.log, view.topic, definition):
        where = view.topic, storage.storage
        yield {Partition(*where, number): each for number, each in enumerate(bounds)}


def _newest(
    log: Log, partitions: dict[Partition, Bounds], count: int
) -> tuple[dict[Partition, int], int]:
    """Return the offsets of the newest `count` messages of a storage topic, and their number."""
    if count == 0:
        return {where: bounds.end for where, bounds in partitions.items()}, 0
    names = list(partitions)
    found = [_newest_records(log, where, partitions[where], count) for where in names]
    times = np.concatenate([times for times, _ in found])
    owners = np.repeat(np.arange(len(names)), [len(times) for times, _ in found])
    # A stable sort keeps the order of equal timestamps within a partition.
    kept = np.sort(np.argsort(times, kind="stable")[-count:])
    counts = np.bincount(owners[kept], minlength=len(names)).tolist()
    offsets = {}
    for where, (_, newest), count_here in zip(names, found, counts, strict=True):
        offsets[where] = int(newest[-count_here]) if count_here else partitions[where].end
    return offsets, len(kept)


def _newest_records(log: Log, partition: Partition, bounds: Bounds, count: int) -> tuple[Any, Any]:
    """Return the timestamps, made to rise, and offsets of a partition's newest `count` records."""
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
