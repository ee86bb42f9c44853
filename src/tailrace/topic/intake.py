"""From what users push to records: keys, headers, times, payloads, each within its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa

from tailrace.clock import Clock
from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.log.columns import FEW, HEADERS, normalise
from tailrace.log.record import TIMESTAMP_MAX, Record, header_block
from tailrace.log.vectors import row_lengths
from tailrace.payload import BYTES, CONTENT_TYPE, Payload
from tailrace.settings import HubSettings

T = TypeVar("T")

Key: TypeAlias = "str | bytes | None"
"""What order is kept by. Text is UTF-8; None and an empty one are no key."""

Headers: TypeAlias = "Mapping[str, bytes | str] | None"
"""What goes with a payload. Text is UTF-8."""

Time: TypeAlias = "datetime | int | None"
"""An aware datetime or milliseconds since 1970 UTC; None is now."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS: Final = "str, bytes or None"


class Intake(Generic[T]):
    """Makes records of what users push to one topic, or raises before anything is written.

    `now_ms` gives the time of messages that have none of their own.
    """

    __slots__ = (
        "_key_bytes_max", "_message_bytes_max", "_payload", "_raw", "_topic", "now_ms",
    )  # fmt: skip

    def __init__(
        self, topic: str, payload: Payload[T], settings: HubSettings, clock: Clock
    ) -> None:
        self._topic = topic
        self._payload = payload
        self.now_ms = clock.now_ms
        self._key_bytes_max = settings.key_bytes_max
        self._message_bytes_max = settings.message_bytes_max
        # Bytes are then stored as they are, so that nothing need be encoded.
        self._raw = payload.content_type == BYTES and payload.kind in ("bytes", "untyped")

    def record(self, value: T, key: Key, headers: Headers, timestamp: Time) -> Record:
        """One message as a record without an offset."""
        data, block = self.data(value, headers)
        time_ms = self.now_ms() if timestamp is None else milliseconds(timestamp)
        return Record(0, time_ms, 0, 0, self.key(key), block, data)

    def key(self, key: Key) -> bytes | None:
        """The bytes of a key, or None for none."""
        if not key:
            return None
        found = key.encode() if isinstance(key, str) else key
        if not isinstance(found, bytes):
            raise InvalidValue("key", key, _KEYS)
        if len(found) > self._key_bytes_max:
            self._check_key(len(found))
        return found

    def data(self, value: T, headers: Headers) -> tuple[bytes, dict[str, bytes] | None]:
        """The bytes of a payload, and its headers, with a content type that is not the topic's."""
        if self._raw and not headers and isinstance(value, bytes):
            if len(value) > self._message_bytes_max:
                self._check_message(len(value))
            return value, None
        data, content_type = self._payload.encode(value, f"topic {self._topic!r}")
        block = {name: _header(name, held) for name, held in headers.items()} if headers else {}
        if content_type is not None:
            block.setdefault(CONTENT_TYPE, content_type.encode())
        self._check_message(len(data) + _block_bytes(block))
        return data, block or None

    def pairs(self, messages: Sequence[tuple[Key, T]]) -> tuple[Record, ...] | pa.RecordBatch:
        """One or more keys and values as records: few in a tuple, many as columns."""
        try:
            keys, values = zip(*messages, strict=True)
        except (TypeError, ValueError) as error:
            raise InvalidValue("messages", messages, "pairs of a key and a value") from error
        if len(messages) < FEW:
            now_ms = self.now_ms()
            rows = zip(keys, values, strict=True)
            return tuple(self.record(value, key, None, now_ms) for key, value in rows)
        encoded, kinds = self._payload.encode_many(values, f"topic {self._topic!r}")
        columns = {"key": _keys(keys), "value": pa.array(encoded, pa.binary())}
        if kinds is not None:
            blocks = [None if kind is None else [(CONTENT_TYPE, kind.encode())] for kind in kinds]
            columns["headers"] = pa.array(blocks, HEADERS)
        return self.columns(pa.RecordBatch.from_pydict(columns))

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Columns from anywhere as records: checked, completed, and within the limits."""
        whole = normalise(batch, self.now_ms())
        if whole.num_rows:
            self._check_key(_longest(whole["key"]))
            self._check_message(_longest(whole["value"]))
            if whole["headers"].null_count < whole.num_rows:
                self._check_with_headers(whole)
        return whole

    def _check_with_headers(self, batch: pa.RecordBatch) -> None:
        rows = zip(batch["value"], batch["headers"].to_pylist(), strict=True)
        self._check_message(
            max(len(value.as_buffer()) + _block_bytes(dict(pairs or ())) for value, pairs in rows)
        )

    def _check_key(self, size_bytes: int) -> None:
        limit_bytes = self._key_bytes_max
        if size_bytes > limit_bytes:
            raise MessageTooLarge("a key", size_bytes, limit_bytes, "hub.key_bytes_max")

    def _check_message(self, size_bytes: int) -> None:
        limit_bytes = self._message_bytes_max
        if size_bytes > limit_bytes:
            raise MessageTooLarge("a message", size_bytes, limit_bytes, "hub.message_bytes_max")


def milliseconds(timestamp: object) -> int:
    """A time as milliseconds since 1970 UTC; `InvalidValue` for a naive one."""
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        timestamp = (timestamp - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(timestamp, int) and 0 <= timestamp <= TIMESTAMP_MAX:
        return timestamp
    raise InvalidValue("timestamp", timestamp, "an aware datetime, or milliseconds since 1970 UTC")


def _header(name: object, value: object) -> bytes:
    found = value.encode() if isinstance(value, str) else value
    if not isinstance(name, str) or not isinstance(found, bytes):
        raise InvalidValue(f"header {name!r}", value, "bytes or str, under a name that is str")
    return found


def _keys(keys: Sequence[Key]) -> pa.Array[Any]:
    try:
        return pa.array(keys, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        wrong = next((key for key in keys if not isinstance(key, (str, bytes, NoneType))), None)
        raise InvalidValue("key", wrong, _KEYS) from error


def _block_bytes(headers: Mapping[str, bytes]) -> int:
    return len(header_block(headers)) if headers else 0


def _longest(column: pa.Array[Any]) -> int:
    return int(row_lengths(column).max())
