"""What users hold: partitions, positions, receipts, messages.

A partition is written ``orders/1.7`` (storage topic 1, partition 7) and a position in it
``orders/1.7@42``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar, overload

from tailrace.errors import InvalidValue

T = TypeVar("T")

_PARTITION = re.compile(r"(?P<topic>[^/@\s]+)/(?P<storage>[0-9]+)\.(?P<number>[0-9]+)")


class Mode(IntEnum):
    """Where in the life of a source a record was read."""

    COPY = 0
    SYNC = 1
    COMPLETE = 2


class Op(IntEnum):
    """What happened to the row that a record describes."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    COMMAND = 3
    NOOP = 4


class Partition(NamedTuple):
    """A partition of a storage topic of a topic."""

    topic: str
    storage: int
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.storage}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Read ``orders/1.7``; anything else is an `InvalidValue` that shows the form."""
        match = _PARTITION.fullmatch(text)
        if match is None:
            raise InvalidValue("partition", text, "TOPIC/STORAGE.PARTITION, for example orders/1.7")
        return cls(match["topic"], int(match["storage"]), int(match["number"]))


class Position(NamedTuple):
    """One record of a hub."""

    topic: str
    storage: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.storage}.{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read ``orders/1.7@42``; anything else is an `InvalidValue` that shows the form."""
        head, at, offset = text.rpartition("@")
        if (
            not at
            or not (offset.isascii() and offset.isdecimal())
            or _PARTITION.fullmatch(head) is None
        ):
            raise InvalidValue(
                "position", text, "TOPIC/STORAGE.PARTITION@OFFSET, for example orders/1.7@42"
            )
        return cls(*Partition.parse(head), int(offset))


@dataclass(frozen=True, slots=True)
class Range:
    """Records that one commit appended to one partition: `count` offsets from `start` on."""

    partition: Partition
    start: int
    count: int

    @property
    def end(self) -> int:
        """The first offset after the range."""
        return self.start + self.count


class Receipt(NamedTuple):
    """Where a pushed message landed. Having one means that the message is stored."""

    topic: str
    storage: int
    partition: int
    offset: int
    timestamp: int

    @property
    def id(self) -> str:
        """The position in writing, ``orders/1.7@42``: the id of the message for ever."""
        return f"{self.topic}/{self.storage}.{self.partition}@{self.offset}"


class Receipts(Sequence[Receipt]):
    """The receipts of one `push_many`, in the order of its messages, each made when it is looked
    at."""

    __slots__ = ("_at", "_length")

    def __init__(self, length: int, at: Callable[[int], Receipt]) -> None:
        self._length = length
        self._at = at

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(self._length))]
        return self._at(range(self._length)[index])

    def __iter__(self) -> Iterator[Receipt]:
        return map(self._at, range(self._length))

    def __repr__(self) -> str:
        return f"<{self._length} receipts>"


@dataclass(slots=True, eq=False)
class Message(Generic[T]):
    """A record as a user sees it. `value` is decoded on first use; `repr` shows no payload."""

    topic: str
    storage: int
    partition: int
    offset: int
    timestamp_ms: int
    mode: Mode
    op: Op
    key_bytes: bytes | None
    headers: Mapping[str, bytes]
    data: bytes
    _decode: Callable[[Message[T]], T]
    _value: Any = None
    _decoded: bool = False

    @property
    def id(self) -> str:
        """The position in writing, ``orders/1.7@42``."""
        return f"{self.topic}/{self.storage}.{self.partition}@{self.offset}"

    @property
    def position(self) -> Position:
        """The position as a value."""
        return Position(self.topic, self.storage, self.partition, self.offset)

    @property
    def timestamp(self) -> datetime:
        """The producer's time, aware, UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def key(self) -> str | None:
        """The key as text, or None where there is none; bytes that are not UTF-8 are escaped."""
        return (
            None if self.key_bytes is None else self.key_bytes.decode("utf-8", "backslashreplace")
        )

    @property
    def value(self) -> T:
        """The payload as the topic's type; `DecodeError` where the bytes are not of it."""
        if not self._decoded:
            self._value = self._decode(self)
            self._decoded = True
        value: T = self._value
        return value

    def __repr__(self) -> str:
        return f"<Message {self.id} key={self.key!r} {len(self.data)} bytes>"
