"""Reads of a shard's owner: the records of a partition, and the keys that lag."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.backend.contract import Backend
from tailrace.delivery.dead_letters.addressing import addressed_to
from tailrace.delivery.fetched import FetchedBatch
from tailrace.log.control import without_control
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within


def read_batch(
    backend: Backend,
    consumer: str,
    partition: Partition,
    start: int,
    bytes_max: int,
    end: int | None = None,
) -> FetchedBatch | None:
    """Return the next records of a partition, before `end`; None if there are none yet.

    Control records and records for another consumer are left out, as if they were gaps.
    """
    chunk = backend.log.read(partition, start, bytes_max, end)
    if chunk.next_offset == start:
        return None
    return FetchedBatch(partition, start, chunk.next_offset, _readable(chunk.records, consumer))


def read_lagging(
    backend: Backend, consumer: str, partition: Partition, progress: Progress
) -> Iterator[tuple[bytes | None, Sequence[int]]]:
    """Yield the unacknowledged messages of a partition of RQ or DLQ: keys, with offsets in order.

    A key may come several times, always with higher offsets. What `read_batch` leaves out lags
    nowhere: a message that lags is read again when its turn comes.
    """
    for records in read_unacknowledged(backend, consumer, partition, progress):
        yield from offsets_by_key(records["key"], records["offset"])


def read_unacknowledged(
    backend: Backend, consumer: str, partition: Partition, progress: Progress
) -> Iterator[pa.RecordBatch]:
    """Yield the unacknowledged messages of a partition for a consumer, in order."""
    bounds = backend.log.bounds(partition)
    for first, after in progress.holes(bounds.end):
        start = max(first, bounds.start)
        for found in batches_within(backend.log, partition, start, after):
            yield _readable(found, consumer)


def _readable(records: pa.RecordBatch, consumer: str) -> pa.RecordBatch:
    """Return the records that are messages for a consumer."""
    return without_control(addressed_to(records, consumer))


def offsets_by_key(
    keys: pa.Array[Any], offsets: pa.Array[Any]
) -> Iterator[tuple[bytes | None, Sequence[int]]]:
    """Yield each key of a column with the offsets of its rows, in order, in 8 bytes each."""
    encoded: Any = keys.dictionary_encode()
    indexes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(indexes, kind="stable")
    numbers, ranks = offsets.to_numpy()[order], indexes[order]
    starts = np.flatnonzero(np.diff(ranks, prepend=np.int64(-2)))
    names = encoded.dictionary.to_pylist()
    for start, end in pairwise((*starts, len(ranks))):
        rank = int(ranks[start])
        yield (None if rank < 0 else names[rank]), array("q", numbers[start:end].tobytes())
