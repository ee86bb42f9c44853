"""Extents: which bytes of which files are which offsets, for processes that have no hub open.

Whoever has the hub open makes extents of a range; whoever can read the directory, and nothing but
that, decodes them: the tasks of a cluster, for example. Checksums are verified there as anywhere.
Compaction replaces files, so extents are for ranges that nobody compacts meanwhile: above the
low-water mark of a registered consumer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.backend.embedded.damage import corrupt, gone
from tailrace.log.columns import decode_pieces
from tailrace.log.disk import Disk
from tailrace.log.index import ENTRY, BatchEntry
from tailrace.log.record import DamagedRecord, Positions
from tailrace.log.segment import Damage, Segment
from tailrace.message import Partition

READ_BYTES: Final = 1 << 20
"""About how much one batch of records has."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Batches of one segment, one or more, in order. Pickles.

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
    def records(self) -> int:
        """How many records the batches have."""
        return int(self.rows["records"].sum(dtype=np.int64))

    @property
    def bytes(self) -> int:
        """How many bytes the batches have."""
        return int(self.rows["bytes"].sum(dtype=np.int64))


class _OpenedForReading(Segment):
    """A segment of a directory that this process may only read."""

    access: ClassVar[int] = os.O_RDONLY


class Load(NamedTuple):
    """Neighbouring batches of an extent with their bytes, verified, and where in these each record
    begins, if that is kept."""

    entries: list[BatchEntry]
    data: bytes
    positions: Positions | None


def read_extent(extent: Extent, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The records from offset `start` up to, not including, `end`, about 1 MB at a time.

    Batches that only overlap the range are cut to it. `CorruptBatch` for damaged bytes and for a
    file that is gone; whole batches before it are still given.
    """
    for entries, data, positions in load_extent(extent, start, end):
        try:
            for records in decode_pieces(data, positions, READ_BYTES):
                within = _cut(records, start, end)
                if within.num_rows:
                    yield within
        except DamagedRecord as damaged:
            segment = _opened(extent)
            raise corrupt(extent.partition, segment, Damage(entries[0], str(damaged))) from damaged


def load_extent(extent: Extent, start: int, end: int) -> Iterator[Load]:
    """The bytes of all batches that overlap a range, some neighbours at a time; raises as
    `read_extent`."""
    rows = _overlapping(extent.rows, start, end)
    segment = _opened(extent)
    for first, last in _groups(rows):
        entries = [BatchEntry(*row[:-1]) for row in rows[first:last].tolist()]
        try:
            data, positions, damage = segment.load(entries)
        except FileNotFoundError as error:
            last_offset = entries[-1].base + entries[-1].records - 1
            raise gone(extent.partition, entries[0].base, last_offset, error) from error
        if data:
            yield Load(entries, data, positions)
        if damage is not None:
            raise corrupt(extent.partition, segment, damage)


def _opened(extent: Extent) -> Segment:
    return _OpenedForReading(Path(extent.directory), extent.base, Disk(), extent.generation)


def _overlapping(rows: npt.NDArray[Any], start: int, end: int) -> npt.NDArray[Any]:
    ends = rows["base"] + rows["records"]
    return rows[np.searchsorted(ends, start, "right") : np.searchsorted(rows["base"], end)]


def _groups(rows: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Neighbours in the file that make about `READ_BYTES` together, as slices of `rows`."""
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
