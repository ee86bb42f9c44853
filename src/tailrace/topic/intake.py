"""From what users push to records: keys, headers, times and payloads as bytes, each within its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.clock import Clock
from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.log.columns import FEW, HEADERS, normalise
from tailrace.log.record import TIMESTAMP_MAX, Record, header_block
from tailrace.payload import BYTES, CONTENT_TYPE, Payload
from tailrace.settings import HubSettings

T = TypeVar("T")

Key: TypeAlias = "str | bytes | None"
"""What order is kept by. Text is UTF-8; None and an empty one are no key."""

Headers: TypeAlias = "Mapping[str, bytes | str] | None"
"""What goes with a payload. Text is UTF-8."""

Time: TypeAlias = "datetime | int | None"
"""An aware datetime or milliseconds since 1970 UTC; None is now."""


class Intake(Generic[T]):
    """Makes records for one topic of what users push, or says what is wrong with it before anything is written."""

    __slots__ = ("_clock", "_payload", "_topic", "key_bytes_max", "message_bytes_max", "raw")

    def __init__(
        self, topic: str, payload: Payload[T], settings: HubSettings, clock: Clock
    ) -> None:
        self._topic = topic
        self._payload = payload
        self._clock = clock
        self.key_bytes_max = settings.key_bytes_max
        self.message_bytes_max = settings.message_bytes_max
        self.raw = payload.content_type == BYTES and payload.kind in ("bytes", "untyped")
        """Whether bytes are stored as they are, so that nothing need be encoded."""

    def now_ms(self) -> int:
        """The time that messages without one of their own get."""
        return self._clock.now_ms()

    def record(self, value: T, key: Key, headers: Headers, timestamp: Time) -> Record:
        """One message as a record without an offset."""
        data, block = self.data(value, headers)
        time_ms = self._clock.now_ms() if timestamp is None else milliseconds(timestamp)
        return Record(0, time_ms, 0, 0, self.key(key), block, data)

    def key(self, key: Key) -> bytes | None:
        """The bytes of a key, or None for none."""
        if not key:
            return None
        found = key.encode() if isinstance(key, str) else key
        if not isinstance(found, bytes):
            raise InvalidValue("key", key, "str, bytes or None")
        if len(found) > self.key_bytes_max:
            raise MessageTooLarge("a key", len(found), self.key_bytes_max, "hub.key_bytes_max")
        return found

    def data(self, value: T, headers: Headers) -> tuple[bytes, dict[str, bytes] | None]:
        """The bytes of a payload, and its headers with the content type where it is not the topic's."""
        data, content_type = self._payload.encode(value, f"topic {self._topic!r}")
        block = {name: _header(name, held) for name, held in headers.items()} if headers else {}
        if content_type is not None:
            block.setdefault(CONTENT_TYPE, content_type.encode())
        size = len(data) + (len(header_block(block)) if block else 0)
        if size > self.message_bytes_max:
            raise MessageTooLarge(
                "a message", size, self.message_bytes_max, "hub.message_bytes_max"
            )
        return data, block or None

    def pairs(self, messages: Sequence[tuple[Key, T]]) -> tuple[Record, ...] | pa.RecordBatch:
        """Keys and values as records: few in a tuple, many as columns."""
        now_ms = self._clock.now_ms()
        if len(messages) < FEW:
            return tuple(self.record(value, key, None, now_ms) for key, value in messages)
        keys = [key.encode() if isinstance(key, str) else key for key, _ in messages]
        values, kinds = self._payload.encode_many(
            [value for _, value in messages], f"topic {self._topic!r}"
        )
        columns = {"key": binary(keys, "key"), "value": binary(values, "value")}
        if kinds is not None:
            blocks = [None if kind is None else [(CONTENT_TYPE, kind.encode())] for kind in kinds]
            columns["headers"] = pa.array(blocks, HEADERS)
        return self.columns(pa.RecordBatch.from_pydict(columns))

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Columns from anywhere as records: checked, completed, and within the limits."""
        whole = normalise(batch, self._clock.now_ms())
        if whole.num_rows:
            _check_lengths(whole["key"], self.key_bytes_max, "a key", "hub.key_bytes_max")
            _check_lengths(
                whole["value"], self.message_bytes_max, "a message", "hub.message_bytes_max"
            )
            if whole["headers"].null_count < whole.num_rows:
                self._check_with_headers(whole)
        return whole

    def _check_with_headers(self, batch: pa.RecordBatch) -> None:
        lengths = pc.binary_length(batch["value"]).to_numpy()
        for length, pairs in zip(lengths.tolist(), batch["headers"].to_pylist(), strict=True):
            size = length + (len(header_block(dict(pairs))) if pairs else 0)
            if size > self.message_bytes_max:
                raise MessageTooLarge(
                    "a message", size, self.message_bytes_max, "hub.message_bytes_max"
                )


def binary(values: Sequence[bytes | None], what: str) -> pa.BinaryArray:
    """A column of bytes; `InvalidValue` where one of the values is something else."""
    try:
        return pa.array(values, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidValue(what, _first_not_bytes(values), "bytes") from error


def milliseconds(timestamp: object) -> int:
    """A time as milliseconds since 1970 UTC; `InvalidValue` for one that is naive or has no encoding."""
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        timestamp = int(timestamp.timestamp() * 1000)
    if isinstance(timestamp, int) and 0 <= timestamp <= TIMESTAMP_MAX:
        return timestamp
    raise InvalidValue("timestamp", timestamp, "an aware datetime, or milliseconds since 1970 UTC")


def _header(name: object, value: object) -> bytes:
    found = value.encode() if isinstance(value, str) else value
    if not isinstance(name, str) or not isinstance(found, bytes):
        raise InvalidValue(f"header {name!r}", value, "bytes or str, under a name that is str")
    return found


def _first_not_bytes(values: Sequence[Any]) -> Any:
    return next((v for v in values if v is not None and not isinstance(v, bytes)), None)


def _check_lengths(column: pa.Array, limit_bytes: int, what: str, setting: str) -> None:
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > limit_bytes:
        raise MessageTooLarge(what, longest, limit_bytes, setting)
