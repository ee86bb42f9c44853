"""The index of a segment: its batch entries, once there are too many of them for `hub.db`.

An `.index` file is a sequence of blocks, each written once and checksummed. All numbers are
big-endian.

    block   magic "TRIX"   4 bytes
            count          4 bytes   entries in the block
            first offset   8 bytes   base offset of the first entry
            checksum       4 bytes   CRC-32 of the entries' bytes
            checksum       4 bytes   CRC-32 of the 20 bytes before it
            entries        count x 56 bytes, as `ENTRY`

Blocks let a reader find an offset by reading a few headers, and let a writer add entries without
touching older ones: bytes after the length that `hub.db` names do not exist.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.log.checksum import crc32
from tailrace.log.disk import Disk

MAGIC = b"TRIX"
_HEADER = struct.Struct(">4sIqI")
_CHECKSUM = struct.Struct(">I")
_HEAD_BYTES = _HEADER.size + _CHECKSUM.size
ENTRY = np.dtype(
    [
        ("base", ">i8"),
        ("records", ">u4"),
        ("ordinal", ">u4"),
        ("position", ">u4"),
        ("bytes", ">u4"),
        ("first_timestamp", ">i8"),
        ("last_timestamp", ">i8"),
        ("appended_ms", ">i8"),
        ("crc", ">u4"),
        ("reserved", ">u4"),
    ]
)


class BatchEntry(NamedTuple):
    """The offsets and bytes of a batch in a segment. `base + records` is the first offset after the
    batch. `first_timestamp` is the least timestamp of its records, and `last_timestamp` the
    greatest, in whatever order the records are."""

    base: int
    records: int
    ordinal: int
    position: int
    bytes: int
    first_timestamp: int
    last_timestamp: int
    appended_ms: int
    crc: int


class DamagedIndex(ValueError):
    """An `.index` file is damaged. `next_offset` is the first offset after the damage, if known."""

    def __init__(self, reason: str, next_offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.next_offset = next_offset


class _IndexBlock(NamedTuple):
    """The place of a block's entries."""

    first_offset: int
    position: int
    bytes: int
    crc: int


def encode_block(entries: Sequence[BatchEntry]) -> bytes:
    """Return the bytes of one block."""
    rows = np.array([(*entry, 0) for entry in entries], dtype=ENTRY).tobytes()
    header = _HEADER.pack(MAGIC, len(entries), entries[0].base, crc32(rows))
    return header + _CHECKSUM.pack(crc32(header)) + rows


class IndexReader:
    """Finds entries in one `.index` file. Remembers the blocks that it has read past; keeps one
    block in memory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._blocks: list[_IndexBlock] = []
        self._walked_bytes = 0
        self._held: tuple[int, npt.NDArray[np.void]] | None = None

    def entries(
        self, descriptor: int, index_bytes: int, offset: int, bytes_max: int
    ) -> list[BatchEntry]:
        """Return entries from the one that holds `offset`, or the next, to the one that reaches
        `bytes_max` or to the end of its block.

        Empty after the last entry. `index_bytes` is the committed length. `DamagedIndex` if damage
        hides the answer: entries before the damage are still found.
        """
        damage = self._walk(descriptor, index_bytes)
        number = max(
            0, bisect_right(self._blocks, offset, key=lambda block: block.first_offset) - 1
        )
        while number < len(self._blocks) and self._blocks[number].position < index_bytes:
            rows = self._rows(descriptor, number)
            first = int(np.searchsorted(rows["base"] + rows["records"], offset, side="right"))
            if first < len(rows):
                filled = int(rows["position"][first]) + bytes_max
                last = int(np.searchsorted(rows["position"] + rows["bytes"], filled))
                return [BatchEntry(*row[:-1]) for row in rows[first : last + 1].tolist()]
            number += 1
        if damage is not None:
            raise damage
        return []

    def packed(self, descriptor: int, index_bytes: int, start: int, end: int) -> bytes:
        """Return all entries, as rows of `ENTRY`, that hold an offset from `start` up to `end`.

        `DamagedIndex` if damage hides any of them.
        """
        damage = self._walk(descriptor, index_bytes)
        found: list[bytes] = []
        first = max(0, bisect_right(self._blocks, start, key=lambda block: block.first_offset) - 1)
        for number, block in enumerate(self._blocks[first:], first):
            if block.first_offset >= end or block.position >= index_bytes:
                break
            rows = self._rows(descriptor, number)
            within = (rows["base"] < end) & (rows["base"] + rows["records"] > start)
            found.append(rows[within].tobytes())
        else:
            if damage is not None:
                raise damage
        return b"".join(found)

    def offsets_between(
        self, descriptor: int, index_bytes: int, start_ms: int, end_ms: int
    ) -> tuple[int, int] | None:
        """Return the offsets from the first to the last batch that can have a timestamp from
        `start_ms` up to, not including, `end_ms`; None if no batch can.

        Reads from both ends up to a match. `DamagedIndex` if damage hides the answer.
        """
        blocks = self._whole(descriptor, index_bytes)
        first = self._first_match(descriptor, blocks, start_ms, end_ms)
        if first is None:
            return None
        last = self._first_match(descriptor, blocks[::-1], start_ms, end_ms)
        assert last is not None
        return int(first["base"][0]), int(last["base"][-1]) + int(last["records"][-1])

    def time_bounds(self, descriptor: int, index_bytes: int) -> tuple[int, int]:
        """Return the least and the greatest timestamp of all entries, of which there is one or
        more. `DamagedIndex` if damage hides the answer."""
        times: list[tuple[int, int]] = []
        for number in self._whole(descriptor, index_bytes):
            rows = self._rows(descriptor, number)
            least, greatest = rows["first_timestamp"].min(), rows["last_timestamp"].max()
            times.append((int(least), int(greatest)))
        return min(least for least, _ in times), max(greatest for _, greatest in times)

    def _first_match(
        self, descriptor: int, blocks: range, start_ms: int, end_ms: int
    ) -> npt.NDArray[np.void] | None:
        """Return the entries of the first block with a match that can match."""
        for number in blocks:
            rows = self._rows(descriptor, number)
            matches = (rows["first_timestamp"] < end_ms) & (rows["last_timestamp"] >= start_ms)
            if matches.any():
                return rows[matches]
        return None

    def _whole(self, descriptor: int, index_bytes: int) -> range:
        """Return the numbers of all blocks; `DamagedIndex` if one of them is not found."""
        damage = self._walk(descriptor, index_bytes)
        if damage is not None:
            raise damage
        return range(bisect_left(self._blocks, index_bytes, key=lambda block: block.position))

    def _walk(self, descriptor: int, index_bytes: int) -> DamagedIndex | None:
        while self._walked_bytes < index_bytes:
            position = self._walked_bytes
            head = self._disk.read(descriptor, _HEAD_BYTES, position)
            if len(head) < _HEAD_BYTES:
                return DamagedIndex(f"it ends at {position + len(head)}, not at {index_bytes}")
            magic, count, first_offset, crc = _HEADER.unpack_from(head)
            whole = _CHECKSUM.pack(crc32(head[: _HEADER.size])) == head[_HEADER.size :]
            if magic != MAGIC or not whole:
                return DamagedIndex(f"no block begins at byte {position}")
            size = count * ENTRY.itemsize
            self._blocks.append(_IndexBlock(first_offset, position + _HEAD_BYTES, size, crc))
            self._walked_bytes += _HEAD_BYTES + size
        return None

    def _rows(self, descriptor: int, number: int) -> npt.NDArray[np.void]:
        if self._held is not None and self._held[0] == number:
            return self._held[1]
        block = self._blocks[number]
        data = self._disk.read(descriptor, block.bytes, block.position)
        if len(data) != block.bytes or crc32(data) != block.crc:
            after = (
                self._blocks[number + 1].first_offset if number + 1 < len(self._blocks) else None
            )
            raise DamagedIndex(f"the entries at byte {block.position} fail their checksum", after)
        rows = np.frombuffer(data, dtype=ENTRY)
        self._held = (number, rows)
        return rows
