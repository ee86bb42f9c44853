"""Records as Spark rows, and Spark rows as records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.errors import InvalidValue
from tailrace.message import MODE_NAMES, OP_NAMES, Partition
from tailrace.spark.ranges import BATCH_ROWS

_PAIRS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": _PAIRS,
    "storage": IntegerType(),
    "op": StringType(),
    "mode": StringType(),
}
"""The columns of a read, in this order; `headers` only with the option includeHeaders."""

_NULLABLE: Final = frozenset({"key", "headers"})
"""The columns that may have nulls. Spark reads the others faster."""

WRITTEN: Final[dict[str, tuple[DataType, ...]]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (_PAIRS, MapType(StringType(), BinaryType())),
    "timestamp": (TimestampType(),),
    "op": (StringType(),),
    "mode": (StringType(),),
}
"""The columns that a write takes, with their types."""

_MICROSECONDS: Final = pa.timestamp("us", "UTC")


def spark_schema(include_headers: bool) -> StructType:
    """Return all columns of a read."""
    return StructType(
        [column_field(name) for name in COLUMNS if name != "headers" or include_headers]
    )


def column_field(name: str) -> StructField:
    """Return a column of a read, with its type."""
    return StructField(name, COLUMNS[name], name in _NULLABLE)


def check_read(schema: StructType) -> StructType:
    """Return the schema that a user asks for: some of the columns, in any order."""
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise InvalidValue("a column", field.name, ", ".join(COLUMNS))
        if not _same(field.dataType, kind):
            what = f"the type of column {field.name!r}"
            raise InvalidValue(what, field.dataType.simpleString(), kind.simpleString())
    return schema


def check_write(schema: StructType) -> None:
    """Raise `InvalidValue` unless rows of this schema can be messages."""
    for field in schema.fields:
        kinds = WRITTEN.get(field.name)
        if kinds is None:
            valid = f"{', '.join(WRITTEN)}; choose with select()"
            raise InvalidValue("a column", field.name, valid)
        if not any(_same(field.dataType, kind) for kind in kinds):
            what = f"the type of column {field.name!r}"
            valid = " or ".join(kind.simpleString() for kind in kinds)
            raise InvalidValue(what, field.dataType.simpleString(), valid)
    if "value" not in schema.names:
        raise InvalidValue("columns", schema.names, f"value, and any of {', '.join(WRITTEN)}")


def _same(one: DataType, other: DataType) -> bool:
    """True if two types are the same, apart from nullability."""
    return one.simpleString() == other.simpleString()


class ToSpark:
    """Turns records of a partition into batches of a Spark schema."""

    def __init__(self, schema: StructType, partition: Partition) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        fields = zip(schema.names, self._schema, strict=True)
        self._columns = [_column(name, field.type, partition) for name, field in fields]

    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows in the Spark schema."""
        columns = [column(records) for column in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


_Column: TypeAlias = "Callable[[pa.RecordBatch], pa.Array[Any]]"


def _column(name: str, kind: pa.DataType, partition: Partition) -> _Column:
    makers: Mapping[str, _Column] = {
        "topic": lambda records: _repeated(partition.topic, kind, records.num_rows),
        "partition": lambda records: _repeated(partition.number, kind, records.num_rows),
        "storage": lambda records: _repeated(partition.storage, kind, records.num_rows),
        "timestamp": lambda records: records["timestamp"].cast(_MICROSECONDS),
        "headers": lambda records: _pairs(records["headers"], kind),
        "op": lambda records: _names(records["op"], OP_NAMES),
        "mode": lambda records: _names(records["mode"], MODE_NAMES),
    }
    return makers.get(name, lambda records: records[name])


@lru_cache(maxsize=64)
def _block(value: str | int, kind: pa.DataType) -> pa.Array[Any]:
    return cast("pa.Array[Any]", pa.array([value], kind).take(np.zeros(BATCH_ROWS, np.int32)))


def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array[Any]:
    return _block(value, kind).slice(0, count)


def _names(codes: pa.Array[Any], names: tuple[str, ...]) -> pa.Array[Any]:
    if not np.any(codes.to_numpy()):
        return _repeated(names[0], pa.string(), len(codes))
    return pa.array(names).take(codes)


def _pairs(headers: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    return headers.cast(kind)


def to_append(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return Spark rows, without their topics and partitions, as `Topic.append` takes them.

    A null value deletes its key, as in Kafka: it is stored as an empty value with the op delete.
    """
    columns: dict[str, pa.Array[Any]] = dict(zip(rows.schema.names, rows.columns, strict=True))
    if "value" in columns and columns["value"].null_count:
        _mark_deletions(columns, rows.num_rows)
    for name, names in (("op", OP_NAMES), ("mode", MODE_NAMES)):
        if name in columns:
            columns[name] = _codes(name, columns[name], names)
    if "headers" in columns:
        columns["headers"] = _map(columns["headers"])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _mark_deletions(columns: dict[str, pa.Array[Any]], count: int) -> None:
    """Make the rows with a null value deletions; `InvalidValue` if a row says otherwise."""
    values = columns["value"]
    nulls = pc.is_null(values)
    ops = columns.get("op", pa.nulls(count, pa.string()))
    others = ops.filter(pc.and_(nulls, pc.is_valid(ops)))
    for op in pc.unique(others).to_pylist():
        if op != "delete":
            raise InvalidValue("column 'value'", None, f"a value that is not null with op {op!r}")
    columns["value"] = values.fill_null(pa.scalar(b"").cast(values.type))
    columns["op"] = pc.if_else(nulls, pa.scalar("delete"), ops)


def _codes(name: str, column: pa.Array[Any], names: tuple[str, ...]) -> pa.Array[Any]:
    """Return the codes of ops or modes; null is the first one, as for rows without the column."""
    codes = pc.index_in(column, pa.array(names))
    if codes.null_count > column.null_count:
        unknown = column.filter(pc.and_(pc.is_null(codes), pc.is_valid(column)))[0].as_py()
        raise InvalidValue(f"column {name!r}", unknown, ", ".join(names))
    return codes.fill_null(0)


def _map(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return headers as a map; they may be an array of names and values."""
    if pa.types.is_map(column.type) or pa.types.is_null(column.type):
        return column
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    names, values = cast("Any", column).flatten().flatten()
    if names.null_count or values.null_count:
        raise InvalidValue("column 'headers'", None, "no null as a name or a value")
    made: pa.Array[Any] = cast("Any", pa.MapArray).from_arrays(
        offsets, names, values, mask=pc.is_null(column)
    )
    return made
