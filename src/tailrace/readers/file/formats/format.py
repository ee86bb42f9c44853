"""The contract of a file format."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import FileInfo, OpenFile
from tailrace.readers.file.formats.columns import documents


class FileEnd(Enum):
    """What follows the bytes that were read from a file."""

    NOT_REACHED = auto()
    """More bytes of the file."""
    GROWING = auto()
    """Nothing yet: the program that writes the file may be in the middle of a line."""
    BOUNDED = auto()
    """Nothing that belongs to this run: the run ends at this size of the file."""
    FINAL = auto()
    """Nothing: the file was rotated away or deleted."""


class BadLine(NamedTuple):
    """A line, or a value that begins on it, that could not be read.

    `line` is None if the lines before it were not counted: then it begins at the byte `offset`.
    """

    line: int | None
    error: str
    value: bytes
    offset: int = 0

    @property
    def where(self) -> str:
        """The place of the line in its file."""
        return f"byte {self.offset}" if self.line is None else str(self.line)


class FileChunk(NamedTuple):
    """The result of one read: JSON documents, bad lines, and the position after them."""

    values: pa.Array[Any]
    identities: Sequence[bytes] | None
    bad: Sequence[BadLine]
    position: FilePosition


class FileFormat(Protocol):
    """Reads files of one format, one chunk at a time."""

    @property
    def grows(self) -> bool:
        """True if files of this format are read while they are written."""

    def read(
        self, file: OpenFile, position: FilePosition, limit: int | None, end: FileEnd
    ) -> FileChunk | None:
        """Return the rows after a position, within the file's first `limit` bytes; None at its end.

        `end` is what follows the last byte of the file. Raises `UnreadableFile` if the file is
        not of this format.
        """


def unreadable_chunk(position: FilePosition, error: str, info: FileInfo) -> FileChunk:
    """Return the chunk that reports a damaged file and stops reading it until it is rewritten."""
    after = msgspec.structs.replace(
        position, given_up=True, size=info.size, modified_ns=info.modified_ns
    )
    return FileChunk(documents(()), (), [BadLine(position.line + 1, error, b"")], after)
