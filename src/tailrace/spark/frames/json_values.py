"""JSON values as Spark structs, parsed by Arrow in the task that reads them.

The result equals that of Spark's `from_json`. Arrow parses many values at once and is strict; it
parses only fields whose types both understand alike. Values that it refuses, such as malformed
ones, are left to `from_json` itself: `JsonValues` returns their bytes beside the structs, and the
plan of the query parses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.json
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from tailrace.payload.json_lines import join_objects

_ALIKE: Final = (BooleanType, ByteType, ShortType, IntegerType, LongType, DoubleType)
_FEW: Final = 32
"""So many values or fewer, of which Arrow refuses one, are all left to Spark."""


def is_alike(kind: DataType) -> bool:
    """True if Arrow reads JSON of this type as Spark does, or refuses it."""
    if isinstance(kind, ArrayType):
        return is_alike(kind.elementType)
    if isinstance(kind, StructType):
        distinct = len(set(kind.names)) == len(kind.names) > 0
        return distinct and all(is_alike(field.dataType) for field in kind.fields)
    # Text of a collation, and text of limited length, are other types.
    return kind == StringType() or isinstance(kind, _ALIKE)


class JsonValues:
    """Turns a column of JSON values into structs of a schema, of which `is_alike` is true."""

    def __init__(self, schema: StructType) -> None:
        self._type = cast("Any", to_arrow_type(schema, timezone="UTC"))
        self._fields: list[pa.Field[Any]] = list(self._type)
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(self._fields), unexpected_field_behavior="ignore"
        )

    def __call__(self, values: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
        """Return the struct of each value, and the bytes of each value that is left to Spark.

        In each row one of both is null.
        """
        structs, left = [], []
        for part, parsed in self._parts(values):
            structs.append(pa.nulls(len(part), self._type) if parsed is None else parsed)
            left.append(part if parsed is None else pa.nulls(len(part), pa.binary()))
        if not structs:
            return pa.nulls(0, self._type), values
        return pa.concat_arrays(structs), pa.concat_arrays(left)

    def _parts(
        self, values: pa.Array[Any]
    ) -> Iterator[tuple[pa.Array[Any], pa.StructArray | None]]:
        """Yield the values in order, in parts that Arrow parses, or leaves to Spark as a whole."""
        waiting = [values] if len(values) else []
        while waiting:
            part = waiting.pop()
            parsed = self._parse(part)
            if parsed is not None or len(part) <= _FEW:
                yield part, parsed
            else:
                half = len(part) // 2
                waiting += [part.slice(half), part.slice(0, half)]

    def _parse(self, values: pa.Array[Any]) -> pa.StructArray | None:
        lines = join_objects(values)
        if lines is None:
            return None
        try:
            table = pyarrow.json.read_json(
                cast("Any", pa.BufferReader(lines)),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
                parse_options=self._options,
            )
            if table.num_rows != len(values):
                return None
            columns: list[Any] = [column.combine_chunks() for column in table.columns]
            for column in columns:
                column.validate(full=True)
            pairs = zip(columns, self._fields, strict=True)
            columns = [column.cast(field.type) for column, field in pairs]
        except (pa.ArrowException, UnicodeError):
            return None
        if not all(map(_is_finite, columns)):
            return None
        return pa.StructArray.from_arrays(columns, fields=self._fields)


def _is_finite(column: Any) -> bool:
    """True if no number is NaN or infinite: Arrow and Spark have different words for these."""
    if isinstance(column, pa.StructArray):
        return all(map(_is_finite, column.flatten()))
    if isinstance(column, pa.ListArray):
        return _is_finite(column.flatten())
    if not pa.types.is_float64(column.type):
        return True
    return bool(np.isfinite(column.drop_null().to_numpy()).all())
