"""Extents: which bytes of which files hold which offsets, for processes without an open hub.

A process with the hub open makes the extents of a range. A process that can read the directory,
such as a task of a Spark cluster, reads their records, and verifies the checksums as any reader
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.backend.contract import Amount
from tailrace.backend.embedded.damage import corrupt, missing_file
from tailrace.log.columns import decode_pieces
from tailrace.log.disk import Disk
from tailrace.log.index import ENTRY, BatchEntry
from tailrace.log.record import DamagedRecord, Positions
from tailrace.log.segment import Damage, ReadOnlySegment, Segment
from tailrace.message import Partition

READ_BYTES: Final = 1 << 20
"""The approximate number of bytes that are read and decoded at a time."""


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """See `tailrace.backend.capabilities.Extent`: one batch or more of one segment, in order.

    `entries` has their batch entries, packed as in an index file.
    """

    partition: Partition
    directory: str
    base: int
    generation: int
    entries: bytes

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The batch entries as an array of `tailrace.log.index.ENTRY`."""
        return np.frombuffer(self.entries, ENTRY)

    @property
    def start(self) -> int:
        """The first offset."""
        return int(self.rows["base"][0])

    @property
    def end(self) -> int:
        """The first offset after the last record."""
        return int(self.rows["base"][-1]) + int(self.rows["records"][-1])

    @property
    def log_path(self) -> str:
        """The file that holds the records."""
        return str(self._segment().log_path)

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.rows["records"].sum(dtype=np.int64))

    @property
    def bytes(self) -> int:
        """The number of bytes."""
        return int(self.rows["bytes"].sum(dtype=np.int64))

    def amount(self, start: int, end: int) -> Amount:
        """Count the records from `start` up to, not including, `end`, by the entries alone.

        The records of a batch count as equally long.
        """
        rows = self.rows
        first = rows["base"].astype(np.int64)
        within = np.minimum(first + rows["records"], end) - np.maximum(first, start)
        within = np.maximum(within, 0)
        size_bytes = (rows["bytes"] * (within / rows["records"])).sum()
        return Amount(int(within.sum()), round(float(size_bytes)))

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records between two offsets; see the protocol."""
        for entries, data, positions in self.load(start, end):
            try:
                for records in decode_pieces(data, positions, READ_BYTES):
                    within = _cut(records, start, end)
                    if within.num_rows:
                        yield within
            except DamagedRecord as damaged:
                damage = Damage(entries[0], str(damaged))
                raise corrupt(self.partition, self._segment(), damage) from damaged

    def load(self, start: int, end: int) -> Iterator[LoadedBatches]:
        """Yield the bytes of all batches that overlap a range, some neighbours at a time; raises
        as `read` does."""
        rows = _overlapping(self.rows, start, end)
        segment = self._segment()
        for first, last in _groups(rows):
            entries = [BatchEntry(*row[:-1]) for row in rows[first:last].tolist()]
            try:
                data, positions, damage = segment.load(entries)
            except FileNotFoundError as error:
                last_offset = entries[-1].base + entries[-1].records - 1
                raise missing_file(self.partition, entries[0].base, last_offset, error) from error
            if data:
                yield LoadedBatches(entries, data, positions)
            if damage is not None:
                raise corrupt(self.partition, segment, damage)

    def _segment(self) -> Segment:
        return ReadOnlySegment(Path(self.directory), self.base, Disk(), self.generation)


class LoadedBatches(NamedTuple):
    """Neighbouring batches of an extent, their verified bytes, and the position of each record in
    these bytes, if it is stored."""

    entries: list[BatchEntry]
    data: bytes
    positions: Positions | None


def _overlapping(rows: npt.NDArray[Any], start: int, end: int) -> npt.NDArray[Any]:
    ends = rows["base"] + rows["records"]
    return rows[np.searchsorted(ends, start, "right") : np.searchsorted(rows["base"], end)]


def _groups(rows: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield slices of `rows`: neighbours in the file that have about `READ_BYTES` together."""
    if not len(rows):
        return
    begins = rows["position"].astype(np.int64)
    ends = begins + rows["bytes"]
    blocks = begins // READ_BYTES
    breaks = (blocks[1:] != blocks[:-1]) | (begins[1:] != ends[:-1])
    bounds = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(rows)]
    yield from pairwise(bounds)


def _cut(records: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = records.column("offset").to_numpy()
    if start <= offsets[0] and offsets[-1] < end:
        return records
    first, last = np.searchsorted(offsets, (start, end)).tolist()
    return records.slice(first, last - first)
