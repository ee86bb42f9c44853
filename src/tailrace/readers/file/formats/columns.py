"""Arrow columns of JSON documents, and the records made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.log.schema import HEADERS, NO_CODES, NO_OFFSETS, SCHEMA, TIMESTAMP, zeros
from tailrace.message import Mode, Op


def change_records(
    namespace: str, values: pa.Array[Any], mode: Mode, op: Op, now_ms: int
) -> pa.RecordBatch:
    """Return a record for each JSON document, all of one namespace, mode and op."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            zeros(count, NO_OFFSETS),
            pa.array(np.full(count, now_ms, np.int64)).view(TIMESTAMP),
            _codes(mode, count),
            _codes(op, count),
            pa.repeat(pa.scalar(namespace.encode(), pa.binary()), count),
            pa.nulls(count, HEADERS),
            values,
        ],
        schema=SCHEMA,
    )


def documents(values: Sequence[bytes]) -> pa.Array[Any]:
    """Return JSON documents as a column."""
    return pa.array(values, pa.binary())


def concatenate(columns: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """Return columns of documents as one column."""
    return columns[0] if len(columns) == 1 else pa.concat_arrays([documents(()), *columns])


def slice_column(
    data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> pa.Array[Any]:
    """Return a column whose row i is `data[starts[i]:ends[i]]`.

    The rows must be in order and must not overlap.
    """
    count = len(starts)
    if not count:
        return documents(())
    # The bytes between two rows are a row of this array too; `take` leaves those rows out.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    buffers = [None, pa.py_buffer(bounds.data), pa.py_buffer(data)]
    pieces: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return pieces.take(np.arange(0, 2 * count, 2, dtype=np.int32))


def _codes(code: int, count: int) -> pa.Array[Any]:
    return pa.array(np.full(count, code, np.uint8)) if code else zeros(count, NO_CODES)
