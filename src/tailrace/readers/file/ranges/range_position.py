"""The positions of the ranges of a file, and the position in the file that they make. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tailrace.log.checksum import crc32_combine
from tailrace.readers.file.file_position import FINGERPRINT_BYTES, FilePosition, Fingerprint
from tailrace.readers.file.ranges.division import FileRange


class RangeData(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a range split: its bytes, or its rows if the file is Parquet.

    The lines that start within `range` belong to it. `start` is the start of the file, with its
    `head` at the discovery, or its `size` and `modified_ns`; `size` is its size at that time.
    """

    namespace: str
    start: FilePosition = msgspec.field(name="place")
    range: FileRange
    size: int


class RangePosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a range was copied.

    Its first line starts at `begin`. The `file_position` is None if no line starts in the range, or
    none was found yet; its checksum is that of the bytes from `begin` on. `lines` and `rows` count
    the lines that were read and the rows that were appended.
    """

    begin: int = 0
    file_position: FilePosition | None = msgspec.field(default=None, name="place")
    lines: int = 0
    rows: int = 0


class DividedFile(msgspec.Struct, frozen=True):
    """A file whose ranges are copied: its start, its ranges, and the split that will follow it.

    `position` is as the `start` of `RangeData`.
    """

    position: FilePosition = msgspec.field(name="place")
    starts: tuple[int, ...]
    split: str

    @property
    def ranges(self) -> tuple[str, ...]:
        """The ids of the splits that copy the ranges, in the order of the file."""
        return tuple(range_id(self.position.path, start) for start in self.starts)


def range_id(path: str, start: int) -> str:
    """Return the id of the split that copies the range of a file from `start` on."""
    return f"range:{start}:{path}"


def whole_position(start: FilePosition, ranges: Iterable[RangePosition]) -> FilePosition:
    """Return the position in a file after the copies of its ranges, which are in order.

    It is the position that one copy would have that stopped where the first range ended too early:
    because the file was rewritten, cut or removed. `start` has the `head` of the file.
    """
    read = list(_without_gaps(ranges))
    position, checksum, lines = FilePosition(start.path, start.device, start.inode), 0, 0
    for each, position in read:
        checksum = crc32_combine(checksum, position.checksum, position.offset - each.begin)
        lines += each.lines
    offset = position.offset
    head = start.head if offset >= start.head.length else Fingerprint(offset, checksum)
    return msgspec.structs.replace(
        position, line=lines, checksum=checksum, head=head, tail=_tail(read)
    )


def _without_gaps(ranges: Iterable[RangePosition]) -> Iterator[tuple[RangePosition, FilePosition]]:
    """Yield the ranges with rows, each of which begins where the previous one ends."""
    offset = 0
    for each in ranges:
        position = each.file_position
        if position is None or (position.offset == each.begin and not position.given_up):
            continue
        if each.begin != offset:
            return
        yield each, position
        if position.given_up:
            return
        offset = position.offset


def _tail(read: Sequence[tuple[RangePosition, FilePosition]]) -> Fingerprint:
    """Return the fingerprint of the last bytes of ranges: of enough of them, if there are."""
    tail = Fingerprint()
    for each, position in reversed(read):
        tail = position.tail.then(tail)
        is_whole = position.tail.length == position.offset - each.begin
        if tail.length >= FINGERPRINT_BYTES or not is_whole:
            break
    return tail
