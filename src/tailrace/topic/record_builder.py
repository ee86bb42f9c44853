"""Records from the arguments of a push: keys, headers, times, payloads, each within its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import pyarrow as pa

from tailrace.clock import Clock
from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.log.column_codec import row_lengths
from tailrace.log.columns import encode, normalise
from tailrace.log.messages import encode_messages
from tailrace.log.record import TIMESTAMP_MAX, Record, header_block
from tailrace.payload import BYTES, CONTENT_TYPE, Payload
from tailrace.settings import HubSettings
from tailrace.topic.order_by import OrderBy, at_place
from tailrace.topic.reserved_headers import check_header_name, check_header_names
from tailrace.topic.routed_batch import RoutedBatch

T = TypeVar("T")

Key: TypeAlias = "str | bytes | None"
"""The key of a message, which order is kept by. Text is UTF-8; None and empty mean no key."""

Headers: TypeAlias = "Mapping[str, bytes | str] | None"
"""The headers of a message. Text is UTF-8. Names that begin with ``tailrace.`` are refused."""

Time: TypeAlias = "datetime | int | None"
"""An aware datetime or milliseconds since 1970 UTC; None means now."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS: Final = "str, bytes or None"
_PAIRS: Final = "pairs of a key and a value: [(key, value), ...]"


class RecordBuilder(Generic[T]):
    """Builds records of messages pushed to one topic; raises before anything is written.

    `now_ms` gives the timestamp of messages without one. Keys of up to `raw_key_bytes_max` bytes
    and byte values of up to `raw_bytes_max` are stored unchanged; `raw_bytes_max` is -1 if values
    must be encoded. A message with its headers may have `message_bytes_max` bytes. If the topic has
    an `order_by`, that is the key, and another one is refused; then `raw_key_bytes_max` is -1.
    """

    __slots__ = (
        "_payload", "_topic", "key_bytes_max", "message_bytes_max", "now_ms", "order_by",
        "raw_bytes_max", "raw_key_bytes_max",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        payload: Payload[T],
        settings: HubSettings,
        clock: Clock,
        order_by: str | None = None,
    ) -> None:
        self._topic = topic
        self._payload = payload
        self.now_ms = clock.now_ms
        self.order_by = None if order_by is None else OrderBy(order_by)
        self.key_bytes_max = settings.key_bytes_max
        self.raw_key_bytes_max = settings.key_bytes_max if order_by is None else -1
        self.message_bytes_max = settings.message_bytes_max
        # Bytes are then stored unchanged, so nothing needs to be encoded.
        raw = payload.content_type == BYTES and payload.kind in ("bytes", "untyped")
        self.raw_bytes_max = settings.message_bytes_max if raw else -1

    def record(self, value: T, key: Key, headers: Headers, timestamp: Time) -> Record:
        """Return one message as a record without an offset."""
        data, block = self.data(value, headers)
        time_ms = self.now_ms() if timestamp is None else milliseconds(timestamp)
        key_bytes = self.key(key) if self.order_by is None else self.ordered_key(key, data, block)
        return Record(0, time_ms, 0, 0, key_bytes or None, block, data)

    def key(self, key: Key) -> bytes:
        """Return the bytes of a key; empty for none."""
        if not key:
            return b""
        found = _utf8("key", key) if isinstance(key, str) else key
        if not isinstance(found, bytes):
            raise InvalidValue("key", key, _KEYS)
        if len(found) > self.key_bytes_max:
            self._check_key(len(found))
        return found

    def ordered_key(self, key: Key, data: bytes, headers: Mapping[str, bytes] | None) -> bytes:
        """Return the key of a message of a topic with an `order_by`, given its payload and its
        headers; `InvalidValue` if the message lacks it, or was pushed with another key."""
        assert self.order_by is not None
        found = self.order_by.chosen(self.key(key), data, headers)
        self._check_key(len(found))
        return found

    def data(self, value: T, headers: Headers) -> tuple[bytes, dict[str, bytes] | None]:
        """Return the bytes of a payload, and its headers.

        The headers have the content type if it is not the topic's.
        """
        if isinstance(value, bytes) and len(value) <= self.raw_bytes_max and not headers:
            return value, None
        data, content_type = self._payload.encode(value, f"topic {self._topic!r}")
        block = _headers(headers) if headers else {}
        if content_type is not None:
            block.setdefault(CONTENT_TYPE, content_type.encode())
        self._check_message(len(data) + _block_bytes(block))
        return data, block or None

    def pairs(self, messages: Sequence[tuple[Key, T]]) -> RoutedBatch:
        """Encode one or more pairs of key and value.

        Only the first message is checked for being a pair: text of two characters and a mapping
        with two keys would be taken apart like one.
        """
        first: object = messages[0]
        if not isinstance(first, tuple | list):
            raise InvalidValue("messages", messages, _PAIRS)
        try:
            keys = [key for key, _ in messages]
            values = [value for _, value in messages]
        except (TypeError, ValueError) as error:
            raise InvalidValue("messages", messages, _PAIRS) from error
        data, kinds = self._payload.encode_many(values, f"topic {self._topic!r}")
        headers = {}
        if kinds is not None:
            headers = {i: {CONTENT_TYPE: kind.encode()} for i, kind in enumerate(kinds) if kind}
        block_bytes = max(map(_block_bytes, headers.values()), default=0)
        self._check_message(max(map(len, data)) + block_bytes)
        key_bytes = self._keys(keys, data, headers)
        encoded = encode_messages(key_bytes, data, [self.now_ms()] * len(data), headers)
        return RoutedBatch(encoded, key_bytes)

    def columns(self, batch: pa.RecordBatch, numbers: pa.Array[Any] | None = None) -> RoutedBatch:
        """Check, complete and encode columns of one row or more.

        `numbers` are the partitions that the sender chose, null where the key decides.
        """
        limits = self.key_bytes_max, self.message_bytes_max
        whole = checked_columns(batch, self.now_ms(), *limits)
        if self.order_by is not None:
            if numbers is not None and numbers.null_count < len(numbers):
                problem = f"topic {self._topic!r} is ordered by {self.order_by.text}"
                raise InvalidValue("partition", "chosen", "null in every row", problem=problem)
            whole = self.order_by.with_keys(whole)
            self._check_key(_longest(whole["key"]))
        return RoutedBatch(encode(whole), whole["key"], numbers)

    def _keys(
        self, keys: list[Key], data: list[bytes], headers: Mapping[int, Mapping[str, bytes]]
    ) -> list[bytes]:
        if self.order_by is not None:
            return [
                self._key_at(index, len(data), key, each, headers.get(index))
                for index, (key, each) in enumerate(zip(keys, data, strict=True))
            ]
        kinds = set(map(type, keys))
        if kinds == {bytes}:
            found = cast("list[bytes]", keys)
        elif kinds == {str}:
            found = [_utf8("key", key) for key in cast("list[str]", keys)]
        else:
            found = [self.key(key) for key in keys]
        self._check_key(max(map(len, found)))
        return found

    def _key_at(
        self, index: int, count: int, key: Key, data: bytes, headers: Mapping[str, bytes] | None
    ) -> bytes:
        try:
            return self.ordered_key(key, data, headers)
        except InvalidValue as error:
            raise at_place(error, f"message {index} of {count}") from None

    def _check_key(self, size_bytes: int) -> None:
        _check_key(size_bytes, self.key_bytes_max)

    def _check_message(self, size_bytes: int) -> None:
        _check_message(size_bytes, self.message_bytes_max)


def checked_columns(
    batch: pa.RecordBatch, now_ms: int, key_bytes_max: int, message_bytes_max: int
) -> pa.RecordBatch:
    """Return one row or more as records without offsets, complete and within the limits.

    Needs no hub, so that a process that has none can check what another one stores. Columns that
    were checked are returned unchanged.
    """
    whole = normalise(batch, now_ms)
    check_header_names(whole["headers"])
    _check_key(_longest(whole["key"]), key_bytes_max)
    _check_message(_longest(whole["value"]), message_bytes_max)
    if whole["headers"].null_count < whole.num_rows:
        rows = zip(whole["value"], whole["headers"].to_pylist(), strict=True)
        _check_message(
            max(len(value.as_buffer()) + _block_bytes(dict(pairs or ())) for value, pairs in rows),
            message_bytes_max,
        )
    return whole


def _check_key(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise MessageTooLarge("a key", size_bytes, limit_bytes, "hub.key_bytes_max")


def _check_message(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise MessageTooLarge("a message", size_bytes, limit_bytes, "hub.message_bytes_max")


def milliseconds(timestamp: object) -> int:
    """Return a time as milliseconds since 1970 UTC; `InvalidValue` for a naive datetime."""
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        timestamp = (timestamp - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(timestamp, int) and 0 <= timestamp <= TIMESTAMP_MAX:
        return timestamp
    raise InvalidValue("timestamp", timestamp, "an aware datetime, or milliseconds since 1970 UTC")


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(what, text, "text that can be encoded as UTF-8, or bytes") from error


def _headers(headers: object) -> dict[str, bytes]:
    if not isinstance(headers, Mapping):
        raise InvalidValue("headers", headers, "a mapping of names to bytes or str")
    return {name: _header(name, value) for name, value in headers.items()}


def _header(name: object, value: object) -> bytes:
    found = _utf8(f"header {name!r}", value) if isinstance(value, str) else value
    if not isinstance(name, str) or not isinstance(found, bytes):
        raise InvalidValue(f"header {name!r}", value, "bytes or str, under a name that is str")
    check_header_name(name)
    return found


def _block_bytes(headers: Mapping[str, bytes]) -> int:
    return len(header_block(headers)) if headers else 0


def _longest(column: pa.Array[Any]) -> int:
    return int(row_lengths(column).max())
