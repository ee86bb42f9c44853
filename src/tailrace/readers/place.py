"""How far a file was read, and what tells it from other files."""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.log.checksum import crc32

MARK_BYTES: Final = 256
"""How much of the beginning, and of what was read last, a file is recognised by."""

PAST_MAX: Final = 4
"""How many files that are gone are remembered, to recognise copies of them."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Some bytes that a file is recognised by: how many they are, and their CRC-32."""

    length: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, data: bytes) -> Mark:
        """The mark of these bytes."""
        return cls(len(data), crc32(data))

    def fits(self, data: bytes) -> bool:
        """Whether `data` begins with these bytes."""
        return len(data) >= self.length and crc32(data[: self.length]) == self.checksum


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a file was read. The file is that of `device` and `inode` which begins as `head`.

    `offset` counts the bytes that were read, decompressed; of Parquet, the rows. `checksum` is the
    CRC-32 of all of them, so that a file which begins with the same bytes can be told. `line` is
    the number of lines in them; with `in_line`, the newline of the last one is still to come.
    `size` and `modified_ns` are those of a file that does not grow, when it was read. `columns` are
    those of a CSV file. A file that was `given_up` is not read on. `turn` says which of the
    files of a name it is. `past` are the places in what was read before and is gone.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    line: int = 0
    checksum: int = 0
    head: Mark = Mark()
    tail: Mark = Mark()
    size: int = 0
    modified_ns: int = 0
    columns: tuple[str, ...] = ()
    in_line: bool = False
    given_up: bool = False
    turn: int = 0
    past: tuple[Place, ...] = ()

    @property
    def identity(self) -> tuple[int, int]:
        """What the system knows the file by."""
        return self.device, self.inode

    def behind(self, data: bytes, lines: int, in_line: bool = False) -> Place:
        """The place behind some more bytes with so many lines."""
        head = self.head
        if (missing := MARK_BYTES - head.length) > 0:
            more = data[:missing]
            head = Mark(head.length + len(more), crc32(more, head.checksum))
        offset = self.offset + len(data)
        return msgspec.structs.replace(
            self,
            offset=offset,
            line=self.line + lines,
            checksum=crc32(data, self.checksum),
            head=head,
            tail=Mark.of(data[-MARK_BYTES:]),
            in_line=in_line,
        )

    def then(self, other: Place) -> Place:
        """Another place, which remembers this one: what it tells of is where it was no more."""
        past = (*self.past, msgspec.structs.replace(self, past=()))
        return msgspec.structs.replace(other, past=past[-PAST_MAX:])
