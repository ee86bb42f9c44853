"""One record as bytes, and a few records at a time: the plain loop.

Records follow one another with nothing between them. All numbers are big-endian:

    8  offset
    4  message length = K + D + 8: the key length, the key, the data length and the data
    8  timestamp, milliseconds since 1970 UTC
    1  mode byte: bits 0-1 the mode, bits 2-4 the op, bit 7 "data begins with a header block"
    4  key length K
    K  key
    4  data length D
    D  data

A header block is a 4-byte length and a msgpack map of str to bytes; the payload follows it.
`tailrace.log.column_codec` writes and reads the same bytes for many records at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tailrace.amount import format_amount
from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.message import Mode, Op

OVERHEAD_BYTES = 29
"""The bytes of a record besides its key and its data."""

BATCH_BYTES_MAX = 1 << 30
"""The largest number of bytes of one append to one partition."""

TIMESTAMP_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, the last year of Python's dates."""

HEADERS_BIT = 0x80
MODE_MAX = int(max(Mode))
OP_MAX = int(max(Op))
MODES = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in Mode)
OPS = ", ".join(f"{op.value} {op.name.lower()}" for op in Op)

KEY_TOO_LONG = "key length {} goes beyond the message length {}"
WRONG_LENGTH = "message length {} is not {} + {} + 8"
WRONG_MODE = "mode byte {:#04x} has no meaning"

Buffer: TypeAlias = bytes | bytearray | memoryview
Positions: TypeAlias = npt.NDArray[np.uint32]

_HEAD = Struct(">qIqBI")
_LENGTH = Struct(">I")
_OFFSET = Struct(">q")
_FRAME = Struct(">I9xI")
_FRAME_AT = 8
_AFTER_LENGTH_BYTES = 21
_FEW = 32

_encode_headers = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class Record(NamedTuple):
    """A record of a log. Without a key, `key` is None; without headers, `headers` is None."""

    offset: int
    timestamp: int
    mode: int
    op: int
    key: bytes | None
    headers: Mapping[str, bytes] | None
    value: bytes


class DamagedRecord(ValueError):
    """Bytes that are not whole records: the position of the damaged record, and the reason."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"damaged record at byte {self.position}: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Records as the bytes of a log. Their offsets are not known before the partition is locked.

    `data` is writable, and `positions` has the start of each record in it. `first_timestamp` and
    `last_timestamp` are the least and the greatest; both are 0 if there are no records.
    """

    data: memoryview
    positions: Positions
    first_timestamp: int
    last_timestamp: int

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.positions)

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """The timestamp of each record."""
        if self.first_timestamp == self.last_timestamp:
            return np.full(self.count, self.first_timestamp)
        return _at_every_byte(self.data)[self.positions + 12].astype(np.int64)

    def stamp(self, base_offset: int) -> memoryview:
        """Write the offsets `base_offset`, `base_offset + 1`, … into `data`, and return it.

        Stamping again replaces the offsets, so that a retry may use others.
        """
        count = self.count
        if count < _FEW:
            for offset, position in enumerate(self.positions.tolist(), base_offset):
                _OFFSET.pack_into(self.data, position, offset)
            return self.data
        offsets = np.arange(base_offset, base_offset + count)
        step = len(self.data) // count
        if (self.positions == np.arange(0, step * count, step)).all():
            np.ndarray(count, ">i8", self.data, strides=(step,))[:] = offsets
        else:
            _at_every_byte(self.data)[self.positions] = offsets
        return self.data


def _at_every_byte(data: memoryview) -> npt.NDArray[np.int64]:
    """Return a view of the 8-byte number at every position, to read or write many by one index."""
    return np.ndarray(len(data) - 7, ">i8", data, strides=(1,))


def encode_records(records: Sequence[Record]) -> Encoded:
    """Return the bytes of a few records.

    A mode, op, timestamp or header that cannot be encoded is an `InvalidValue`; more than
    `BATCH_BYTES_MAX` is `MessageTooLarge`.
    """
    parts: list[bytes] = []
    positions: list[int] = []
    position = 0
    for _, timestamp, mode, op, key, headers, value in records:
        check_fields(timestamp, mode, op)
        flags = mode | op << 2
        block = b""
        if headers:
            block = header_block(headers)
            flags |= HEADERS_BIT
        key = key or b""
        key_length = len(key)
        data_length = len(block) + len(value)
        length = key_length + data_length + 8
        positions.append(position)
        position += _AFTER_LENGTH_BYTES + length
        if position > BATCH_BYTES_MAX:
            raise batch_too_large(position)
        head = _HEAD.pack(0, length, timestamp, flags, key_length)
        parts += (head, key, _LENGTH.pack(data_length), block, value)
    timestamps = [record.timestamp for record in records] or [0]
    return Encoded(
        memoryview(bytearray().join(parts)),
        np.array(positions, np.uint32),
        min(timestamps),
        max(timestamps),
    )


def decode_records(data: Buffer) -> list[Record]:
    """Return every record of `data`, which must begin and end with whole ones; else
    `DamagedRecord`."""
    data = bytes(data)
    return [_record_at(data, position) for position in _walk(data)]


def scan_positions(data: Buffer) -> Positions:
    """Return where each record of `data` starts, computed from their lengths, or
    `DamagedRecord`."""
    return np.fromiter(_walk(data), np.uint32)


def _walk(data: Buffer) -> Iterator[int]:
    position, size = 0, len(data)
    while position < size:
        if position + OVERHEAD_BYTES > size:
            left = format_amount(size - position, "byte")
            raise DamagedRecord(position, f"{left} left, a record has at least {OVERHEAD_BYTES}")
        length, key_length = _FRAME.unpack_from(data, position + _FRAME_AT)
        end = position + _AFTER_LENGTH_BYTES + length
        if end > size:
            raise DamagedRecord(position, f"message length {length} goes beyond the last byte")
        if key_length + 8 > length:
            raise DamagedRecord(position, KEY_TOO_LONG.format(key_length, length))
        (data_length,) = _LENGTH.unpack_from(data, position + 25 + key_length)
        if length != key_length + data_length + 8:
            raise DamagedRecord(position, WRONG_LENGTH.format(length, key_length, data_length))
        yield position
        position = end


def _record_at(data: bytes, position: int) -> Record:
    offset, length, timestamp, flags, key_length = _HEAD.unpack_from(data, position)
    mode, op = flags & 3, flags >> 2 & 7
    if flags & 0x60 or mode > MODE_MAX or op > OP_MAX:
        raise DamagedRecord(position, WRONG_MODE.format(flags))
    key_end = position + 25 + key_length
    start, end = key_end + 4, position + _AFTER_LENGTH_BYTES + length
    headers = None
    if flags & HEADERS_BIT:
        headers, start = read_header_block(data, position, start, end)
    key = data[position + 25 : key_end] or None
    return Record(offset, timestamp, mode, op, key, headers, data[start:end])


def check_headers(headers: Mapping[str, bytes]) -> None:
    """Raise `InvalidValue` for the first header that is not bytes under a name that is str."""
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidValue("a header's name", name, "str")
        if not isinstance(value, bytes):
            raise InvalidValue(f"header {name!r}", value, "bytes")


def header_block(headers: Mapping[str, bytes]) -> bytes:
    """Return the block before a payload with headers; `InvalidValue` unless str maps to bytes."""
    check_headers(headers)
    block = _encode_headers(dict(headers))
    return _LENGTH.pack(len(block)) + block


def read_header_block(
    data: Buffer, position: int, start: int, end: int
) -> tuple[dict[str, bytes] | None, int]:
    """Return the headers in data from `start` to `end`, and where the payload begins.

    `DamagedRecord`, which names `position`, if there is no whole block.
    """
    payload = start + 4
    if payload <= end:
        payload += _LENGTH.unpack_from(data, start)[0]
    if payload > end:
        raise DamagedRecord(position, "the header block is longer than the data")
    try:
        return _decode_headers(data[start + 4 : payload]) or None, payload
    except msgspec.MsgspecError as error:
        raise DamagedRecord(position, f"the header block does not decode: {error}") from error


def check_fields(timestamp: int, mode: int, op: int) -> None:
    """Raise `InvalidValue` for the first of the three that cannot be encoded."""
    if not 0 <= mode <= MODE_MAX:
        raise InvalidValue("mode", mode, MODES)
    if not 0 <= op <= OP_MAX:
        raise InvalidValue("op", op, OPS)
    if not 0 <= timestamp <= TIMESTAMP_MAX:
        raise InvalidValue("timestamp", timestamp, f"milliseconds since 1970, 0 to {TIMESTAMP_MAX}")


def batch_too_large(size_bytes: int) -> MessageTooLarge:
    """Return the error for more bytes than one append may have."""
    return MessageTooLarge("a batch", size_bytes, BATCH_BYTES_MAX, "for one append; split it")
