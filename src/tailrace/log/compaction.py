"""Compaction: the records of a segment that stay, and the contents of the new segment.

The last record of every key stays, with its offset, its timestamp and its bytes unchanged. All
records without a key count as records of one more key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.log.checksum import crc32
from tailrace.log.column_codec import records_column
from tailrace.log.index import BatchEntry
from tailrace.log.record import Encoded, Positions

Offsets: TypeAlias = npt.NDArray[np.int64]

RUN_BYTES_MAX = 1 << 20
"""A run of remaining records is cut where it exceeds this, because it is read as a whole."""


class Kept(NamedTuple):
    """Remaining records, one after another, and their entries: one for every run of consecutive
    offsets. `span` covers them all."""

    data: memoryview
    positions: Positions
    entries: list[BatchEntry]

    @property
    def span(self) -> BatchEntry:
        """One entry over all of them, with the place that they are written to."""
        first, last = self.entries[0], self.entries[-1]
        return first._replace(
            records=last.ordinal + last.records - first.ordinal,
            bytes=last.position + last.bytes - first.position,
        )


def last_of_keys(batches: Iterable[pa.RecordBatch]) -> Offsets:
    """Return the offset of the last record of every key, rising. The batches are in order."""
    last: dict[bytes | None, int] = {}
    for batch in batches:
        if batch.num_rows:
            encoded = batch["key"].dictionary_encode(null_encoding="encode")
            newest = np.empty(len(encoded.dictionary), np.int64)
            newest[encoded.indices.to_numpy()] = batch["offset"].to_numpy()  # The last one wins.
            last.update(zip(encoded.dictionary.to_pylist(), newest.tolist(), strict=True))
    return np.sort(np.fromiter(last.values(), np.int64, len(last)))


def keep(
    data: bytes,
    positions: Positions,
    survivors: Offsets,
    appended_ms: int,
    after: BatchEntry | None,
) -> Kept | None:
    """Return the records of `data` whose offsets stay, to be written after the batch `after`.

    `data` has whole records, which begin at `positions`; None if none of them stays.
    """
    raw = np.frombuffer(data, np.uint8)
    offsets = _numbers(raw, positions)
    chosen = np.flatnonzero(np.isin(offsets, survivors, assume_unique=True))
    if not len(chosen):
        return None
    offsets = offsets[chosen]
    timestamps = _numbers(raw, positions[chosen] + np.uint32(12))
    column = records_column(Encoded(memoryview(data), positions, 0, 0)).take(chosen)
    _, bounds_buffer, data_buffer = cast("list[Any]", column.buffers())
    kept = memoryview(data_buffer).cast("B")
    bounds = np.frombuffer(bounds_buffer, np.uint32, len(chosen) + 1)
    firsts = _run_starts(offsets, bounds)
    lasts = np.append(firsts[1:], len(chosen))
    ordinal, position = (
        (0, 0) if after is None else (after.ordinal + after.records, after.position + after.bytes)
    )
    begins, ends = bounds[firsts].tolist(), bounds[lasts].tolist()
    entries = [
        BatchEntry(base, count, ordinal + first, position + begin, end - begin, *times)
        for base, count, first, begin, end, *times in zip(
            offsets[firsts].tolist(),
            (lasts - firsts).tolist(),
            firsts.tolist(),
            begins,
            ends,
            np.minimum.reduceat(timestamps, firsts).tolist(),
            np.maximum.reduceat(timestamps, firsts).tolist(),
            [appended_ms] * len(firsts),
            [crc32(kept[begin:end]) for begin, end in zip(begins, ends, strict=True)],
            strict=True,
        )
    ]
    return Kept(kept[: ends[-1]], bounds[:-1], entries)


def _numbers(raw: npt.NDArray[np.uint8], positions: Positions) -> Offsets:
    """Return the 8-byte numbers at these positions."""
    return np.ndarray(len(raw) - 7, ">i8", raw, strides=(1,))[positions].astype(np.int64)


def _run_starts(offsets: Offsets, bounds: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return where runs begin: after a gap, and where the previous run would become too large."""
    blocks = bounds[:-1] // RUN_BYTES_MAX
    breaks = (offsets[1:] != offsets[:-1] + 1) | (blocks[1:] != blocks[:-1])
    return np.concatenate(([0], np.flatnonzero(breaks) + 1))
