"""Values of the public interface: partitions, positions, receipts, messages.

A partition is written ``orders/1.7`` (storage topic 1, partition 7) and a position in it
``orders/1.7@42``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.errors import DecodeError, InvalidValue

T = TypeVar("T")

_RESET = re.compile(r"\+r[1-9][0-9]*\Z", re.ASCII)
_PARTITION = re.compile(r"(?P<topic>[^/@\s]+)/(?P<storage>[0-9]+)\.(?P<number>[0-9]+)")


class Mode(IntEnum):
    """The phase of a source in which a record was read."""

    COPY = 0
    SYNC = 1
    COMPLETE = 2


class Op(IntEnum):
    """The operation on the row that a record describes."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    COMMAND = 3
    NOOP = 4


MODE_NAMES: Final = tuple(mode.name.lower() for mode in Mode)
"""The names of modes in files and tables, by code: copy, sync, complete."""

OP_NAMES: Final = tuple(op.name.lower() for op in Op)
"""The names of operations in files and tables, by code: insert, update, delete, command, noop."""


class Partition(NamedTuple):
    """A partition of a storage topic of a topic."""

    topic: str
    storage: int
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.storage}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Parse ``orders/1.7``; `InvalidValue` for other text."""
        match = _PARTITION.fullmatch(text)
        if match is None:
            raise InvalidValue("partition", text, "TOPIC/STORAGE.PARTITION, for example orders/1.7")
        return cls(match["topic"], int(match["storage"]), int(match["number"]))


class Position(NamedTuple):
    """The position of one record of a hub."""

    topic: str
    storage: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.storage}.{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse ``orders/1.7@42``; `InvalidValue` for other text.

        The id of a delivery after an offset reset, ``orders/1.7@42+r2``, has the same position.
        """
        head, at, offset = _RESET.sub("", text).rpartition("@")
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
    """Records that one commit appended to one partition: `count` offsets from `start`."""

    partition: Partition
    start: int
    count: int

    @property
    def end(self) -> int:
        """The first offset after the range."""
        return self.start + self.count


class Receipt(NamedTuple):
    """The position of a pushed message. A receipt means that the message is stored."""

    topic: str
    storage: int
    partition: int
    offset: int
    timestamp: int

    @property
    def id(self) -> str:
        """The position as text, ``orders/1.7@42``: the permanent id of the message."""
        return f"{self.topic}/{self.storage}.{self.partition}@{self.offset}"


class Receipts(Sequence[Receipt]):
    """The receipts of one `push_many`, in the order of its messages, each created when it is read.

    They are pickled and copied as a list.
    """

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

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<{format_amount(self._length, 'receipt')}>"


@dataclass(slots=True, eq=False)
class Message(Generic[T]):
    """A record as a user sees it. `value` is decoded on first use; `repr` shows no payload.

    A pickled or copied message has its value decoded: it needs no hub. If the payload does not
    decode, the copy's `value` raises the same `DecodeError`. A delivery is pickled and copied as a
    message, which cannot be acknowledged.
    """

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
    origin: str | None = None
    """The position that a redelivered dead letter had at first; None for other messages."""
    reset: int = 0
    """The number of the offset reset after which a subscription has read the message; 0 if none."""

    @property
    def id(self) -> str:
        """The position as text, ``orders/1.7@42``; ``orders/1.7@42+r2`` of a delivery after the
        second offset reset of its subscription."""
        again = f"+r{self.reset}" if self.reset else ""
        return f"{self.topic}/{self.storage}.{self.partition}@{self.offset}{again}"

    @property
    def is_control(self) -> bool:
        """True for a control record, such as the end of a copy: it is not a user's message."""
        return self.mode is Mode.COMPLETE or self.op >= Op.COMMAND

    @property
    def position(self) -> Position:
        """The position as a value."""
        return Position(self.topic, self.storage, self.partition, self.offset)

    @property
    def timestamp(self) -> datetime:
        """The producer's timestamp, an aware datetime in UTC."""
        return utc_time(self.timestamp_ms)

    @property
    def key(self) -> str | None:
        """The key as text, or None if there is none; bytes that are not UTF-8 are escaped."""
        return (
            None if self.key_bytes is None else self.key_bytes.decode("utf-8", "backslashreplace")
        )

    @property
    def value(self) -> T:
        """The payload as the topic's type; `DecodeError` if its bytes are not of that type."""
        if not self._decoded:
            self._value = self._decode(self)
            self._decoded = True
        value: T = self._value
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (
            self.topic, self.storage, self.partition, self.offset, self.timestamp_ms,
            self.mode, self.op, self.key_bytes, dict(self.headers), self.data,
        )  # fmt: skip
        try:
            return _detached, (fields, self.origin, self.value, None, self.reset)
        except DecodeError as error:
            return _detached, (fields, self.origin, None, error, self.reset)

    def __repr__(self) -> str:
        return f"<Message {self.id} key={self.key!r} {format_amount(len(self.data), 'byte')}>"


def _detached(
    fields: tuple[Any, ...],
    origin: str | None,
    value: Any,
    error: DecodeError | None,
    reset: int = 0,
) -> Message[Any]:
    """Return a message that was pickled or copied."""

    def decode(_message: Message[Any]) -> Any:
        assert error is not None
        raise error

    make: Callable[..., Message[Any]] = Message
    return make(*fields, decode, value, error is None, origin, reset)
