"""One segment of a partition: the files that hold a run of its records.

    00000000000000000042.log         records one after another, and nothing else
    00000000000000000042.positions   4 bytes a record, big-endian: where in .log it begins
    00000000000000000042.index       batch entries that are no longer in hub.db (see `index`)
    00000000000000000042-1.log       the same segment, compacted once: generation 1

The name is the base offset, and the generation if it is not 0. Only bytes that a committed batch
entry names exist; bytes after them are from a write that never committed, and are overwritten.
Files are never truncated, so a reader is never disturbed. Positions are derived: if they are
missing or wrong, they are computed from the records.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.amount import format_amount
from tailrace.log.checksum import crc32
from tailrace.log.columns import decode
from tailrace.log.disk import Buffer, Disk
from tailrace.log.index import BatchEntry, IndexReader, encode_block
from tailrace.log.record import DamagedRecord, Positions
from tailrace.log.sharing import open_or_create

POSITION_BYTES = 4
SEGMENT_BYTES_MAX = 2**32 - 1
"""A position is 4 bytes, so a segment ends before 4 GiB."""

_FILE = re.compile(r"(?P<base>[0-9]{20})(?:-(?P<generation>[1-9][0-9]*))?\.(?:log|positions|index)")


class Damage(NamedTuple):
    """A batch whose bytes are not the committed ones."""

    entry: BatchEntry
    reason: str


def segment_name(base: int, generation: int = 0) -> str:
    """Return the file name, without its suffix, of the segment that begins at an offset."""
    return f"{base:020d}-{generation}" if generation else f"{base:020d}"


def parse_segment_name(file: str) -> tuple[int, int] | None:
    """Return the base offset and generation of a segment's file; None for other files."""
    match = _FILE.fullmatch(file)
    return None if match is None else (int(match["base"]), int(match["generation"] or 0))


class Segment:
    """The files of one segment, opened on first use and closed with the last reference to it."""

    _flags: ClassVar[int] = os.O_RDWR | os.O_CLOEXEC
    """The flags that existing files are opened with."""

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
        """The path of the records."""
        return self._path(".log")

    def create(self) -> None:
        """Create the log file if it is missing. Its name is durable once the directory is
        synced."""
        self._descriptor(".log", create=True)

    @property
    def is_open(self) -> bool:
        """True if the files that appends write are open."""
        return ".log" in self._descriptors and ".positions" in self._descriptors

    def open_for_append(self) -> None:
        """Open the files that appends write."""
        self._descriptor(".log")
        self._descriptor(".positions", create=True)

    def unlink(self) -> None:
        """Remove the files that exist. Readers that have them open can continue."""
        for ending in (".log", ".positions", ".index"):
            self._path(ending).unlink(missing_ok=True)

    def log_bytes(self) -> int:
        """The length of the log file, committed or not; `FileNotFoundError` if the file was removed
        while it is open."""
        status = os.fstat(self._descriptor(".log"))
        if status.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the file was removed", str(self.log_path))
        return status.st_size

    @property
    def is_removed(self) -> bool:
        """True if the files were unlinked, as those of a deleted topic are, while they are open."""
        return any(os.fstat(file).st_nlink == 0 for file in list(self._descriptors.values()))

    def write(self, entry: BatchEntry, data: Buffer, positions: Positions) -> None:
        """Write a batch at the place of its entry. It exists only once the entry is committed."""
        self._disk.write(self._descriptor(".log"), data, entry.position)
        if entry.records == 1:
            absolute = entry.position.to_bytes(POSITION_BYTES, "big")
        else:
            absolute = (positions + np.uint32(entry.position)).astype(">u4").tobytes()
        descriptor = self._descriptor(".positions", create=True)
        self._disk.write(descriptor, absolute, entry.ordinal * POSITION_BYTES)

    def sync(self) -> None:
        """Return when the records are on the device."""
        self._disk.sync(self._descriptor(".log"))

    def sync_positions(self) -> None:
        """Return when the positions are on the device; needed once, when the segment is full."""
        self._disk.sync(self._descriptor(".positions", create=True))

    def sync_index(self) -> None:
        """Return when the folded entries, and the name of their file, are on the device."""
        self._disk.sync(self._descriptor(".index"))
        self._disk.sync_directory(self.directory)

    def read(self, entries: Sequence[BatchEntry]) -> tuple[pa.RecordBatch | None, Damage | None]:
        """Return the records of neighbouring batches up to the first damaged one, and its
        damage."""
        data, positions, damage = self.load(entries)
        if not data:
            return None, damage
        try:
            return decode(data, positions), damage
        except DamagedRecord as damaged:
            return None, Damage(entries[0], str(damaged))

    def load(self, entries: Sequence[BatchEntry]) -> tuple[bytes, Positions | None, Damage | None]:
        """Return the bytes of neighbouring batches up to the first damaged one, and its damage.

        And, if they are stored, the positions of the records in these bytes.
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
        """Return every damaged batch among neighbouring ones."""
        damages = []
        for entry in entries:
            try:
                _, damage = self.read([entry])
            except FileNotFoundError:
                damage = Damage(entry, "the file is missing")
            if damage is not None:
                damages.append(damage)
        return damages

    def fold(self, entries: Sequence[BatchEntry], index_bytes: int) -> int:
        """Write entries after the first `index_bytes` of the index and return its new length."""
        block = encode_block(entries)
        self._disk.write(self._descriptor(".index", create=True), block, index_bytes)
        return index_bytes + len(block)

    def folded(self, index_bytes: int, offset: int, bytes_max: int) -> list[BatchEntry]:
        """Return folded entries from the one that holds `offset`, of one block, up to the one that
        reaches `bytes_max`; [] after the last."""
        descriptor = self._descriptor(".index")
        with self._walking:
            return self._index.entries(descriptor, index_bytes, offset, bytes_max)

    def folded_packed(self, index_bytes: int, start: int, end: int) -> bytes:
        """Return all folded entries, as rows of `index.ENTRY`, that hold an offset in a range.

        The range is from `start` up to, not including, `end`.
        """
        descriptor = self._descriptor(".index")
        with self._walking:
            return self._index.packed(descriptor, index_bytes, start, end)

    def folded_between(
        self, index_bytes: int, start_ms: int, end_ms: int
    ) -> tuple[int, int] | None:
        """Return the offsets from the first to the last folded batch that can have a timestamp
        from `start_ms` up to, not including, `end_ms`; None if no batch can."""
        # A reader of its own: a long search would keep others from the shared one.
        reader = IndexReader(self._disk)
        return reader.offsets_between(self._descriptor(".index"), index_bytes, start_ms, end_ms)

    def folded_times(self, index_bytes: int) -> tuple[int, int]:
        """Return the least and the greatest timestamp of the folded batches."""
        return IndexReader(self._disk).time_bounds(self._descriptor(".index"), index_bytes)

    def _positions(self, first: BatchEntry, count: int) -> Positions | None:
        """Return where `count` records begin, relative to the first batch, if that is stored."""
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
                missing = format_amount(entry.bytes - len(batch), "byte")
                return number, Damage(entry, f"the file ends {missing} early")
            if crc32(batch) != entry.crc:
                return number, Damage(entry, "the checksum does not match")
        return len(entries), None

    def _path(self, ending: str) -> Path:
        return self.directory / (segment_name(self.base, self.generation) + ending)

    def _descriptor(self, ending: str, *, create: bool = False) -> int:
        descriptor = self._descriptors.get(ending)
        if descriptor is None:
            with self._opening:
                if ending not in self._descriptors:
                    path = self._path(ending)
                    self._descriptors[ending] = (
                        open_or_create(path) if create else os.open(path, self._flags)
                    )
                descriptor = self._descriptors[ending]
        return descriptor

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


class ReadOnlySegment(Segment):
    """A segment of a directory that this process only reads."""

    _flags: ClassVar[int] = os.O_RDONLY | os.O_CLOEXEC
