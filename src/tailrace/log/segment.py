"""One segment of a partition: the files that hold a run of its records.

    00000000000000000042.log         records one after another, and nothing else
    00000000000000000042.positions   4 bytes a record, big-endian: where in .log it begins
    00000000000000000042.index       batch entries that no longer stand in hub.db (see `index`)
    00000000000000000042-1.log       the same segment, compacted once: generation 1

The name is the base offset, and the generation if it is not 0. Only bytes that a committed batch
entry names exist; what lies behind them is left from a write that never committed, and is written
over. Files are never truncated, so a reader is never disturbed. Positions are derived: where they
are missing or wrong they are found again from the records.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.log.checksum import crc32
from tailrace.log.columns import decode
from tailrace.log.disk import Buffer, Disk
from tailrace.log.index import BatchEntry, IndexReader, encode_block
from tailrace.log.record import DamagedRecord, Positions

POSITION_BYTES = 4
SEGMENT_BYTES_MAX = 2**32 - 1
"""A position is 4 bytes, so a segment ends before 4 GiB."""

_FILE = re.compile(r"(?P<base>[0-9]{20})(?:-(?P<generation>[1-9][0-9]*))?\.(?:log|positions|index)")


class Damage(NamedTuple):
    """A batch whose bytes are not what was committed."""

    entry: BatchEntry
    reason: str


def segment_name(base: int, generation: int = 0) -> str:
    """The file name, without its ending, of the segment that begins at an offset."""
    return f"{base:020d}-{generation}" if generation else f"{base:020d}"


def parse_segment_name(file: str) -> tuple[int, int] | None:
    """Base offset and generation of the segment that a file belongs to; None for other files."""
    match = _FILE.fullmatch(file)
    return None if match is None else (int(match["base"]), int(match["generation"] or 0))


class Segment:
    """The files of one segment, opened when first used and closed with the last reference to it."""

    access: ClassVar[int] = os.O_RDWR
    """How files are opened."""

    def __init__(self, directory: Path, base: int, disk: Disk, generation: int = 0) -> None:
        self.directory = directory
        self.base = base
        self.generation = generation
        self._disk = disk
        self._descriptors: dict[str, int] = {}
        self._opening = threading.Lock()
        self._walking = threading.Lock()
        self._index = IndexReader(disk)

    @property
    def log_path(self) -> Path:
        """Where the records are."""
        return self._path(".log")

    def create(self) -> None:
        """Make the log file where it is missing. Its name lasts once the directory is synced."""
        self._descriptor(".log", os.O_CREAT)

    def unlink(self) -> None:
        """Remove its files, those there are. Whoever has them open reads on."""
        for ending in (".log", ".positions", ".index"):
            self._path(ending).unlink(missing_ok=True)

    def log_bytes(self) -> int:
        """The length of the log file, committed or not."""
        return os.fstat(self._descriptor(".log")).st_size

    @property
    def is_removed(self) -> bool:
        """Whether its files were unlinked, as those of a deleted topic are, while it has them
        open."""
        return any(os.fstat(file).st_nlink == 0 for file in list(self._descriptors.values()))

    def write(self, entry: BatchEntry, data: Buffer, positions: Positions) -> None:
        """Write a batch where its entry says. It exists only once the entry is committed."""
        self._disk.write(self._descriptor(".log"), data, entry.position)
        if entry.records == 1:
            absolute = entry.position.to_bytes(POSITION_BYTES, "big")
        else:
            absolute = (positions + np.uint32(entry.position)).astype(">u4").tobytes()
        descriptor = self._descriptor(".positions", os.O_CREAT)
        self._disk.write(descriptor, absolute, entry.ordinal * POSITION_BYTES)

    def sync(self) -> None:
        """Return when the records are on the device."""
        self._disk.sync(self._descriptor(".log"))

    def sync_positions(self) -> None:
        """Return when the positions are on the device; worth it once, when the segment is full."""
        self._disk.sync(self._descriptor(".positions", os.O_CREAT))

    def sync_index(self) -> None:
        """Return when the folded entries, and the name of their file, are on the device."""
        self._disk.sync(self._descriptor(".index"))
        self._disk.sync_directory(self.directory)

    def read(self, entries: Sequence[BatchEntry]) -> tuple[pa.RecordBatch | None, Damage | None]:
        """The records of neighbouring batches up to the first damaged one, which is named."""
        data, positions, damage = self.load(entries)
        if not data:
            return None, damage
        try:
            return decode(data, positions), damage
        except DamagedRecord as damaged:
            return None, Damage(entries[0], str(damaged))

    def load(self, entries: Sequence[BatchEntry]) -> tuple[bytes, Positions | None, Damage | None]:
        """The bytes of neighbouring batches up to the first damaged one, which is named.

        With them, where in these bytes each record begins, if that is kept.
        """
        first = entries[0]
        size = entries[-1].position + entries[-1].bytes - first.position
        data = self._disk.read(self._descriptor(".log"), size, first.position)
        good, damage = self._verified(data, entries)
        if not good:
            return b"", None, damage
        last = entries[good - 1]
        count = last.ordinal + last.records - first.ordinal
        end = last.position + last.bytes - first.position
        return data if end == len(data) else data[:end], self._positions(first, count), damage

    def verify(self, entries: Sequence[BatchEntry]) -> list[Damage]:
        """Every damaged batch among neighbouring ones."""
        damages = []
        for entry in entries:
            try:
                _, damage = self.read([entry])
            except FileNotFoundError:
                damage = Damage(entry, "the file is gone")
            if damage is not None:
                damages.append(damage)
        return damages

    def fold(self, entries: Sequence[BatchEntry], index_bytes: int) -> int:
        """Write entries behind the first `index_bytes` of the index and return its new length."""
        block = encode_block(entries)
        self._disk.write(self._descriptor(".index", os.O_CREAT), block, index_bytes)
        return index_bytes + len(block)

    def folded(self, index_bytes: int, offset: int, bytes_max: int) -> list[BatchEntry]:
        """Folded entries from the one that holds `offset` on, of one block, up to the one that
        reaches `bytes_max`; [] past the last."""
        descriptor = self._descriptor(".index")
        with self._walking:
            return self._index.entries(descriptor, index_bytes, offset, bytes_max)

    def folded_packed(self, index_bytes: int, start: int, end: int) -> bytes:
        """All folded entries, as rows of `index.ENTRY`, that hold any offset from `start` up to
        `end`."""
        descriptor = self._descriptor(".index")
        with self._walking:
            return self._index.packed(descriptor, index_bytes, start, end)

    def _positions(self, first: BatchEntry, count: int) -> Positions | None:
        """Where `count` records begin, counted from the first batch, if that is kept."""
        try:
            descriptor = self._descriptor(".positions")
        except FileNotFoundError:
            return None
        size = count * POSITION_BYTES
        raw = self._disk.read(descriptor, size, first.ordinal * POSITION_BYTES)
        if len(raw) < size:
            return None
        return (np.frombuffer(raw, ">u4") - np.uint32(first.position)).astype(np.uint32)

    def _verified(self, data: bytes, entries: Sequence[BatchEntry]) -> tuple[int, Damage | None]:
        view = memoryview(data)
        origin = entries[0].position
        for number, entry in enumerate(entries):
            begin = entry.position - origin
            batch = view[begin : begin + entry.bytes]
            if len(batch) < entry.bytes:
                return number, Damage(
                    entry, f"the file ends {entry.bytes - len(batch)} bytes early"
                )
            if crc32(batch) != entry.crc:
                return number, Damage(entry, "the checksum does not match")
        return len(entries), None

    def _path(self, ending: str) -> Path:
        return self.directory / (segment_name(self.base, self.generation) + ending)

    def _descriptor(self, ending: str, flags: int = 0) -> int:
        descriptor = self._descriptors.get(ending)
        if descriptor is None:
            with self._opening:
                if ending not in self._descriptors:
                    flags |= self.access | os.O_CLOEXEC
                    self._descriptors[ending] = os.open(self._path(ending), flags, 0o644)
                descriptor = self._descriptors[ending]
        return descriptor

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
