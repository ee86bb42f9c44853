"""JSON objects of many values as one text, which Arrow parses at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_OPENING, _CLOSING = b"{}"
_BYTES_MAX: Final = 1 << 30
"""The maximum number of bytes that are joined."""


def join_objects(values: pa.Array[Any]) -> pa.Buffer | None:
    """Return all values, each on a line, if each begins and ends with a brace; else None.

    If Arrow then finds as many objects as there are values, each value is one object: JSON strings
    contain no line break, so no object can extend into the next value.
    """
    if len(values) == 0 or values.nbytes > _BYTES_MAX or not _are_braced(values):
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined: Any = pc.binary_join(lines, b"\n")
    buffer: pa.Buffer = joined[0].as_buffer()
    return buffer


def _are_braced(values: pa.Array[Any]) -> bool:
    buffers: list[Any] = values.buffers()
    _, ends_buffer, data_buffer = buffers
    if data_buffer is None or values.null_count:
        return False
    ends = np.frombuffer(ends_buffer, np.int32, len(values) + 1, 4 * values.offset)
    if not (ends[1:] > ends[:-1]).all():
        return False
    data = np.frombuffer(data_buffer, np.uint8)
    return bool((data[ends[:-1]] == _OPENING).all() and (data[ends[1:] - 1] == _CLOSING).all())
