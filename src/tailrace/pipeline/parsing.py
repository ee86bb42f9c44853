"""JSON documents to Arrow columns without Python objects in between: twice as fast.

Arrow's own reader of JSON does it, held to what `columns_of` would make of the same documents. It
takes text that looks like a time for a time, numbers beyond a double's precision for doubles, and
NaN for a number: the first is prevented by naming text columns beforehand, the rest is noticed. In
any doubt there is no result, and the documents are to be decoded one by one.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

FEW: Final = 32
"""Below so many documents it is not worth it."""

BYTES_MAX: Final = 1 << 30
"""More than that is not parsed at once."""

_SAMPLES: Final = 8
_EXACT_MAX: Final = float(1 << 53)
_BRACES: Final = b"{}"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def parsed(values: pa.Array[Any]) -> pa.RecordBatch | None:
    """The columns of JSON objects, one in each value; None where only decoding them tells."""
    count = len(values)
    if count < FEW or values.nbytes > BYTES_MAX or not _are_braced(values):
        return None
    try:
        step = -(-count // _SAMPLES)
        sample: Any = [_decode(values[index].as_py()) for index in range(0, count, step)]
        kind: Any = pa.array(sample).type
        # A line break cannot be within a string, so no object can reach into the next value.
        lines = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), values)
        joined: Any = pc.binary_join(lines, b"\n")
        batch = _read(joined[0].as_buffer(), _texts_of(kind))
        if batch is None or batch.num_rows != count or not _is_exact(batch):
            return None
        batch.validate(full=True)
    except (pa.ArrowException, msgspec.DecodeError, OverflowError, UnicodeError):
        return None
    names = [field.name for field in kind.fields if field.name in batch.schema.names]
    return batch.select(list(dict.fromkeys([*names, *batch.schema.names])))


def _are_braced(values: pa.Array[Any]) -> bool:
    buffers: list[Any] = values.buffers()
    _, ends_buffer, data_buffer = buffers
    if data_buffer is None or values.null_count:
        return False
    ends = np.frombuffer(ends_buffer, np.int32, len(values) + 1, 4 * values.offset)
    if not (ends[1:] > ends[:-1]).all():
        return False
    data = np.frombuffer(data_buffer, np.uint8)
    opening, closing = _BRACES
    return bool((data[ends[:-1]] == opening).all() and (data[ends[1:] - 1] == closing).all())


def _read(data: pa.Buffer, texts: pa.DataType | None) -> pa.RecordBatch | None:
    """Parse, and again if text was taken for a time, which `texts` can then prevent."""
    for _ in range(2):
        table = pyarrow.json.read_json(
            cast("Any", pa.BufferReader(data)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(cast("Any", texts).fields)) if texts else None,
                unexpected_field_behavior="infer",
            ),
        )
        kind = pa.struct(list(table.schema))
        if not _has_times(kind):
            batches = table.combine_chunks().to_batches()
            return batches[0] if batches else None
        texts = _texts_of(kind)
    return None


def _texts_of(kind: pa.DataType) -> pa.DataType | None:
    """A type with nothing but its text, and what was taken for a time; None if it has none."""
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if isinstance(kind, pa.ListType):
        inner = _texts_of(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if isinstance(kind, pa.StructType):
        found = [(field.name, _texts_of(field.type)) for field in kind.fields]
        texts = [pa.field(name, inner) for name, inner in found if inner is not None]
        return pa.struct(texts) if texts else None
    return None


def _has_times(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.ListType):
        return _has_times(kind.value_type)
    if isinstance(kind, pa.StructType):
        return any(_has_times(field.type) for field in kind.fields)
    return pa.types.is_timestamp(kind)


def _is_exact(batch: pa.RecordBatch) -> bool:
    """Whether no double can stand for a number that it is not."""
    pending: list[Any] = list(batch.columns)
    while pending:
        column = pending.pop()
        if isinstance(column, (pa.StructArray, pa.ListArray)):
            inner: Any = column.flatten()
            pending += inner if isinstance(column, pa.StructArray) else [inner]
        elif pa.types.is_float64(column.type):
            numbers = column.drop_null().to_numpy()
            # NaN is less than nothing.
            if not (np.abs(numbers) < _EXACT_MAX).all():
                return False
    return True
