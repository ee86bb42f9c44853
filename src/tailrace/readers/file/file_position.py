"""Positions in files: how far a file was read, and how to recognise the file."""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.log.checksum import crc32, crc32_combine

FINGERPRINT_BYTES: Final = 256
"""Number of bytes in a fingerprint: of the start of a file, or of the end of the part read."""

PAST_MAX: Final = 4
"""Number of removed files whose positions are kept, to recognise copies of them."""


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """The length and CRC-32 of some bytes, by which a file is recognised."""

    length: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, data: bytes) -> Fingerprint:
        """Return the fingerprint of `data`."""
        return cls(len(data), crc32(data))

    def matches(self, data: bytes) -> bool:
        """True if `data` begins with the bytes that the fingerprint was taken of."""
        return len(data) >= self.length and crc32(data[: self.length]) == self.checksum

    def then(self, other: Fingerprint) -> Fingerprint:
        """Return the fingerprint of the bytes of this one followed by those of another."""
        checksum = crc32_combine(self.checksum, other.checksum, other.length)
        return Fingerprint(self.length + other.length, checksum)


class FilePosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one file was read. A source stores it as the position of a split.

    The file has this `device` and `inode` and begins with `head`. `offset` counts the bytes read,
    after decompression; for Parquet, the rows. `checksum` is the CRC-32 of all those bytes, so that
    another file which begins with them can be recognised, and `tail` is the fingerprint of the last
    ones. `line` counts the lines read; `in_line` is true if the newline of the last one was not
    read yet. `size` and `modified_ns` describe a file that does not grow, when it was read.
    `columns` are the header of a CSV file. A file with `given_up` is damaged and is read again only
    after it was rewritten. `generation` numbers the files that had the same name. `past` are the
    positions in files of that name that were removed.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    line: int = 0
    checksum: int = 0
    head: Fingerprint = Fingerprint()
    tail: Fingerprint = Fingerprint()
    size: int = 0
    modified_ns: int = 0
    columns: tuple[str, ...] = ()
    in_line: bool = False
    given_up: bool = False
    generation: int = msgspec.field(default=0, name="turn")
    past: tuple[FilePosition, ...] = ()

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode of the file."""
        return self.device, self.inode

    def after(self, data: bytes, lines: int, in_line: bool = False) -> FilePosition:
        """Return the position after `data`, which has `lines` lines and was read from here."""
        head = self.head
        missing = FINGERPRINT_BYTES - head.length
        if missing > 0 and head.length == self.offset:
            more = data[:missing]
            head = Fingerprint(head.length + len(more), crc32(more, head.checksum))
        offset = self.offset + len(data)
        return msgspec.structs.replace(
            self,
            offset=offset,
            line=self.line + lines,
            checksum=crc32(data, self.checksum),
            head=head,
            tail=Fingerprint.of(data[-FINGERPRINT_BYTES:]),
            in_line=in_line,
        )

    def replaced_by(self, other: FilePosition) -> FilePosition:
        """Return `other` with this position added to its `past`: the file read here was removed."""
        past = (*self.past, msgspec.structs.replace(self, past=()))
        return msgspec.structs.replace(other, past=past[-PAST_MAX:])
