"""Whether a file holds what was read: of itself before it was written to, or of another one."""

from __future__ import annotations

from enum import Enum, auto

from tailrace.log.checksum import crc32
from tailrace.readers.files import FileInfo, OpenFile, Unreadable
from tailrace.readers.lines import CHUNK_BYTES
from tailrace.readers.place import Place


class Verdict(Enum):
    """What a changed file is, compared to what was read."""

    CONTINUED = auto()
    """It begins with all that was read."""
    ANOTHER = auto()
    """It does not."""
    UNKNOWN = auto()
    """Not known yet: it is shorter than what was read, and may still be written."""


class Judge:
    """Compares files to what was read, look by look.

    One that is `patient` does not decide on a file that was written to since the look before,
    unless it already holds all that was read or cannot any more.
    """

    def __init__(self, patient: bool) -> None:
        self._patient = patient
        self._before: FileInfo | None = None

    def compare(self, file: OpenFile, now: FileInfo, place: Place) -> Verdict:
        """What an open file is, as it is now, compared to what was read up to a place."""
        settled = now == self._before or not self._patient
        self._before = now
        if checksum(file, place.offset) == place.checksum:
            return Verdict.CONTINUED
        head = _begin(file, place.head.length)
        if len(head) == place.head.length and not place.head.fits(head):
            return Verdict.ANOTHER
        return Verdict.ANOTHER if settled else Verdict.UNKNOWN

    def settle(self, now: FileInfo) -> Verdict:
        """Whether a file that is not read while it is written is whole, and so another one."""
        settled = now == self._before or not self._patient
        self._before = now
        return Verdict.ANOTHER if settled else Verdict.UNKNOWN


def holds(file: OpenFile, place: Place) -> bool:
    """Whether a file still holds what was read of it, as far as its ends tell."""
    if file.is_cut(place.offset):
        return False
    if not file.seekable:
        return True
    head, tail = place.head, place.tail
    return head.fits(file.read(0, head.length)) and tail.fits(
        file.read(place.offset - tail.length, tail.length)
    )


def may_hold(file: OpenFile, place: Place) -> bool:
    """Whether a file begins as what was read, as far as it goes."""
    head = _begin(file, place.head.length)
    return len(head) < place.head.length or place.head.fits(head)


def checksum(file: OpenFile, size: int) -> int | None:
    """The CRC-32 of the first bytes of a file; None when it has fewer, or is damaged."""
    found = offset = 0
    while offset < size:
        data = _begin(file, min(CHUNK_BYTES, size - offset), offset)
        if not data:
            return None
        found = crc32(data, found)
        offset += len(data)
    return found


def _begin(file: OpenFile, size: int, offset: int = 0) -> bytes:
    try:
        return file.read(offset, size)
    except Unreadable:
        return b""
