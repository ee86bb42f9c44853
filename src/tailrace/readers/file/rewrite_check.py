"""Check whether a file contains the bytes that were read: from itself earlier, or from another."""

from __future__ import annotations

from enum import Enum, auto

from tailrace.log.checksum import crc32
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import FileInfo, OpenFile, UnreadableFile
from tailrace.readers.file.formats.lines import CHUNK_BYTES


class Comparison(Enum):
    """The result of comparing a file to the bytes that were read."""

    CONTINUED = auto()
    """The file begins with all bytes that were read."""
    DIFFERENT = auto()
    """The file does not begin with them."""
    UNDECIDED = auto()
    """The file is shorter than the bytes that were read, and may still be being written."""


class RewriteCheck:
    """Compares a file, poll by poll, to the bytes that were read.

    A `patient` check is undecided on a file that was modified since the previous poll, unless the
    file already contains all bytes that were read or cannot contain them any more.
    """

    def __init__(self, patient: bool) -> None:
        self._patient = patient
        self._previous: FileInfo | None = None

    def compare(self, file: OpenFile, now: FileInfo, position: FilePosition) -> Comparison:
        """Compare the present content of a file to the bytes read up to a position."""
        unchanged = now == self._previous or not self._patient
        self._previous = now
        if checksum(file, position.offset) == position.checksum:
            return Comparison.CONTINUED
        head = _read(file, position.head.length)
        if len(head) == position.head.length and not position.head.matches(head):
            return Comparison.DIFFERENT
        return Comparison.DIFFERENT if unchanged else Comparison.UNDECIDED

    def compare_whole(self, now: FileInfo) -> Comparison:
        """Return DIFFERENT once a file that is read only when complete is no longer written."""
        unchanged = now == self._previous or not self._patient
        self._previous = now
        return Comparison.DIFFERENT if unchanged else Comparison.UNDECIDED


def is_intact(file: OpenFile, position: FilePosition) -> bool:
    """True if the first and last bytes that were read of a file are unchanged."""
    if file.is_cut(position.offset):
        return False
    if not file.seekable:
        return True
    head, tail = position.head, position.tail
    return head.matches(file.read(0, head.length)) and tail.matches(
        file.read(position.offset - tail.length, tail.length)
    )


def may_contain(file: OpenFile, position: FilePosition) -> bool:
    """True if a file, as far as it is written, begins like the bytes that were read."""
    head = _read(file, position.head.length)
    return len(head) < position.head.length or position.head.matches(head)


def checksum(file: OpenFile, size: int) -> int | None:
    """Return the CRC-32 of the first `size` bytes; None if the file is shorter or damaged."""
    found = offset = 0
    while offset < size:
        data = _read(file, min(CHUNK_BYTES, size - offset), offset)
        if not data:
            return None
        found = crc32(data, found)
        offset += len(data)
    return found


def _read(file: OpenFile, size: int, offset: int = 0) -> bytes:
    try:
        return file.read(offset, size)
    except UnreadableFile:
        return b""
