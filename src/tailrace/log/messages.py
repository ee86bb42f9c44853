"""Messages in Python lists to the bytes of a log: single messages are encoded together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailrace.log.column_codec import encode_columns, even_dtype
from tailrace.log.record import Encoded, Record, check_fields, encode_records
from tailrace.log.schema import from_messages

_FEW: Final = 64
"""Below this number of messages the plain loop is as fast as any other way."""

_FEW_UNEVEN: Final = 256
"""Below this number of messages of different lengths the plain loop is as fast."""


def encode_messages(
    keys: Sequence[bytes],
    values: Sequence[bytes],
    timestamps: Sequence[int],
    headers: Mapping[int, Mapping[str, bytes]],
) -> Encoded:
    """Return the bytes of messages. An empty key is none; `headers` has headers by index.

    A timestamp or header that cannot be encoded is an `InvalidValue`; more than `BATCH_BYTES_MAX`
    is `MessageTooLarge`.
    """
    count = len(values)
    if count >= _FEW and not headers:
        key_lengths, value_lengths = set(map(len, keys)), set(map(len, values))
        if len(key_lengths) == len(value_lengths) == 1:
            return _encode_even(keys, values, timestamps)
    if count < _FEW_UNEVEN:
        rows = zip(timestamps, keys, values, strict=True)
        return encode_records(
            [
                Record(0, time_ms, 0, 0, key, headers.get(index), value)
                for index, (time_ms, key, value) in enumerate(rows)
            ]
        )
    blocks = [headers.get(index) for index in range(count)] if headers else ()
    return encode_columns(from_messages(timestamps, keys, values, blocks))


def _encode_even(
    keys: Sequence[bytes], values: Sequence[bytes], timestamps: Sequence[int]
) -> Encoded:
    """Encode messages whose keys have one length, and whose values have one length."""
    count, key_bytes, value_bytes = len(values), len(keys[0]), len(values[0])
    times: npt.NDArray[np.int64] = np.asarray(timestamps, np.int64)
    first, last = int(times.min()), int(times.max())
    for time_ms in (first, last):
        check_fields(time_ms, 0, 0)
    model = encode_records((Record(0, first, 0, 0, bytes(key_bytes), None, bytes(value_bytes)),))
    data = bytearray(model.data) * count
    rows: npt.NDArray[Any] = np.frombuffer(data, even_dtype(key_bytes, value_bytes))
    if last > first:
        rows["timestamp"] = times
    for name, size, column in (("key", key_bytes, keys), ("value", value_bytes, values)):
        if size:
            rows[name] = np.frombuffer(b"".join(column), rows.dtype[name])
    positions = np.arange(0, len(data), rows.itemsize, dtype=np.uint32)
    return Encoded(memoryview(data), positions, first, last)
