"""Files of lines, read chunk by chunk: whatever a line is, it is taken whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from tailrace.readers.columns import documents
from tailrace.readers.files import FileInfo, OpenFile
from tailrace.readers.place import Place

CHUNK_BYTES: Final = 1 << 20
"""How much is read at a time."""

BOM: Final = b"\xef\xbb\xbf"


class Ending(Enum):
    """What lies behind the bytes that were read."""

    MORE = auto()
    """More of the file."""
    GROWING = auto()
    """Nothing yet: who writes the file may be in the middle of a line."""
    NOW = auto()
    """Nothing, and nothing that comes later counts."""
    GONE = auto()
    """Nothing for ever: the file has been rotated away or deleted."""


class BadLine(NamedTuple):
    """A line, or what began at it, that could not be read."""

    line: int
    error: str
    value: bytes


class Piece(NamedTuple):
    """What was read at a time: JSON documents, what is bad, and the place behind them."""

    values: pa.Array[Any]
    identities: Sequence[bytes] | None
    bad: Sequence[BadLine]
    place: Place


class Parsed(NamedTuple):
    """What a format makes of bytes: it took the first `consumed` of them, with so many lines."""

    consumed: int = 0
    lines: int = 0
    values: pa.Array[Any] = documents(())
    identities: Sequence[bytes] | None = None
    bad: Sequence[BadLine] = ()
    columns: tuple[str, ...] = ()
    in_line: bool = False


class Format(Protocol):
    """How a file is read, a piece at a time."""

    @property
    def grows(self) -> bool:
        """Whether files of this format are read while they are written."""

    def read(self, file: OpenFile, place: Place, limit: int | None, ending: Ending) -> Piece | None:
        """What follows a place, within the file's first `limit` bytes; None when nothing does.

        `Unreadable` when the file is not of this format.
        """


class LineFormat:
    """The base of formats made of lines: a subclass says what bytes mean, by `parse`."""

    grows = True

    def __init__(self, line_bytes_max: int) -> None:
        self.line_bytes_max = line_bytes_max

    def parse(self, data: bytes, place: Place, ending: Ending) -> Parsed:
        """Take what is whole of `data`, which begins at a place."""
        raise NotImplementedError

    def read(self, file: OpenFile, place: Place, limit: int | None, ending: Ending) -> Piece | None:
        """What follows a place; see `Format.read`."""
        if ending is Ending.NOW and limit is not None and file.info("").size > limit:
            ending = Ending.GROWING
        size = CHUNK_BYTES
        while True:
            data = file.read(place.offset, size, limit)
            at_end = len(data) < size
            parsed = self.parse(data, place, ending if at_end else Ending.MORE)
            if parsed.consumed:
                behind = place.behind(data[: parsed.consumed], parsed.lines, parsed.in_line)
                behind = msgspec.structs.replace(behind, columns=parsed.columns)
                return Piece(parsed.values, parsed.identities, parsed.bad, behind)
            if at_end:
                return None
            if size > self.line_bytes_max:
                return self._overlong(file, place, limit, ending)
            size *= 2

    def _overlong(
        self, file: OpenFile, place: Place, limit: int | None, ending: Ending
    ) -> Piece | None:
        """A line that is too long, passed over without holding it."""
        behind, kept = place, b""
        while True:
            data = file.read(behind.offset, CHUNK_BYTES, limit)
            end = data.find(b"\n") + 1
            if not end and len(data) < CHUNK_BYTES and ending is Ending.GROWING:
                return None
            part = data[:end] if end else data
            behind = behind.behind(part, 0)
            kept += part[: self.line_bytes_max - len(kept)]
            if end or len(data) < CHUNK_BYTES:
                break
        behind = msgspec.structs.replace(behind, line=place.line + 1, in_line=not end)
        bad = BadLine(place.line + 1, self.too_long(behind.offset - place.offset), kept)
        return Piece(documents(()), () if self.has_identities else None, [bad], behind)

    has_identities = False

    def too_long(self, size_bytes: int) -> str:
        """What is wrong with a line that has so many bytes."""
        return f"it has {size_bytes:,} bytes, the limit is {self.line_bytes_max:,} (line_bytes_max)"


def given_up(place: Place, error: str, info: FileInfo) -> Piece:
    """What a file gives that cannot be read on, as it is: the reason."""
    behind = msgspec.structs.replace(
        place, given_up=True, size=info.size, modified_ns=info.modified_ns
    )
    return Piece(documents(()), (), [BadLine(place.line + 1, error, b"")], behind)


def start_of(data: bytes, place: Place) -> int:
    """How many bytes belong to no line of their own: a byte order mark, or the end of a line."""
    if place.offset == 0 and data.startswith(BOM):
        return len(BOM)
    if place.in_line:
        end = data.find(b"\n") + 1
        if not data[:end].strip():
            return end
    return 0
