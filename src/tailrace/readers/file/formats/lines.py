"""The base of formats made of lines: reads whole lines or rows, never a part of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import OpenFile
from tailrace.readers.file.formats.columns import documents
from tailrace.readers.file.formats.format import BadLine, FileChunk, FileEnd

CHUNK_BYTES: Final = 1 << 20
"""Number of bytes in one read."""

BOM: Final = b"\xef\xbb\xbf"

_SEARCH_BYTES: Final = 64 << 10
"""Number of bytes in one read of a search for a newline."""


class ParsedLines(NamedTuple):
    """The result of `LineFormat.parse`: it parsed `lines` lines in the first `consumed` bytes."""

    consumed: int = 0
    lines: int = 0
    values: pa.Array[Any] = documents(())
    identities: Sequence[bytes] | None = None
    bad: Sequence[BadLine] = ()
    columns: tuple[str, ...] = ()
    in_line: bool = False


class LineFormat(ABC):
    """The base of `FileFormat`s made of lines. A subclass implements `parse`."""

    grows = True
    has_identities = False

    def __init__(self, line_bytes_max: int) -> None:
        self.line_bytes_max = line_bytes_max

    @abstractmethod
    def parse(self, data: bytes, position: FilePosition, end: FileEnd) -> ParsedLines:
        """Parse the complete lines of `data`, which begins at a position."""

    def read(
        self, file: OpenFile, position: FilePosition, limit: int | None, end: FileEnd
    ) -> FileChunk | None:
        """Return the rows after a position; see `FileFormat.read`."""
        if end is FileEnd.BOUNDED and limit is not None and file.info("").size > limit:
            end = FileEnd.GROWING
        size = CHUNK_BYTES
        while True:
            data = file.read(position.offset, size, limit)
            at_end = len(data) < size
            parsed = self.parse(data, position, end if at_end else FileEnd.NOT_REACHED)
            if parsed.consumed:
                after = position.after(data[: parsed.consumed], parsed.lines, parsed.in_line)
                after = msgspec.structs.replace(after, columns=parsed.columns)
                return FileChunk(parsed.values, parsed.identities, parsed.bad, after)
            if at_end:
                return None
            if size > self.line_bytes_max:
                return self._skip_long_line(file, position, limit, end)
            size *= 2

    def _skip_long_line(
        self, file: OpenFile, position: FilePosition, limit: int | None, end: FileEnd
    ) -> FileChunk | None:
        """Return a line that is too long as a bad line, without holding all of it in memory."""
        after, kept = position, b""
        while True:
            data = file.read(after.offset, CHUNK_BYTES, limit)
            line_end = data.find(b"\n") + 1
            if not line_end and len(data) < CHUNK_BYTES and end is FileEnd.GROWING:
                return None
            part = data[:line_end] if line_end else data
            after = after.after(part, 0)
            kept += part[: self.line_bytes_max - len(kept)]
            if line_end or len(data) < CHUNK_BYTES:
                break
        after = msgspec.structs.replace(after, line=position.line + 1, in_line=not line_end)
        error = self.too_long(after.offset - position.offset)
        bad = BadLine(position.line + 1, error, kept, position.offset)
        return FileChunk(documents(()), () if self.has_identities else None, [bad], after)

    def too_long(self, size_bytes: int) -> str:
        """Return the error for a line of `size_bytes` bytes, above the limit."""
        return f"it has {size_bytes:,} bytes, the limit is {self.line_bytes_max:,} (line_bytes_max)"


def line_start(data: bytes, position: FilePosition) -> int:
    """Return the number of bytes before the first line: a byte order mark, or a line's newline."""
    if position.offset == 0 and data.startswith(BOM):
        return len(BOM)
    if position.in_line:
        end = data.find(b"\n") + 1
        if not data[:end].strip():
            return end
    return 0


def find_line(file: OpenFile, offset: int, limit: int) -> int | None:
    """Return where the first line starts that starts at or after `offset` and before `limit`.

    A line starts after a newline, and at the start of the file.
    """
    if not offset:
        return 0 if limit > 0 else None
    before = offset - 1
    while data := file.read(before, _SEARCH_BYTES, limit - 1):
        if found := data.find(b"\n") + 1:
            return before + found
        before += len(data)
    return None
