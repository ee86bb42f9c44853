"""`tailrace.spark.read`: the messages of a topic as a frame.

The driver plans the ranges of the tasks with the hub open read-only. A task reads the files of its
range, and makes only the columns that are asked for.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.sql.utils import is_remote

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.settings import load
from tailrace.spark.batch import plan_batch
from tailrace.spark.columns import COLUMNS, ToSpark, column_field, spark_schema
from tailrace.spark.frames.json_values import JsonValues, is_alike
from tailrace.spark.frames.native import has_native_reader, native_frame
from tailrace.spark.options import ReadMode, ReadOptions, read_options
from tailrace.spark.ranges import ReadRange, join_ranges
from tailrace.spark.tasks import freeze_loaded_objects, read_records
from tailrace.spark.tracebacks import hide_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets: TypeAlias = str | Mapping[str, Mapping[str, int]]
"""``earliest``, ``latest``, or offsets by topic and partition, as JSON or as a mapping."""

JOINED_BYTES_MAX: Final = 256 << 20
"""A task reads several ranges only if they have no more bytes than this."""

_VALUE: Final = "value"
_LEFT: Final = "tailrace_left"
"""The column with values that Arrow leaves to Spark."""


def read(
    spark: SparkSession,
    topic: str | Topic[Any],
    *,
    hub: str | os.PathLike[str] | Hub | None = None,
    columns: Sequence[str] | None = None,
    value_schema: StructType | str | None = None,
    starting: Offsets = "earliest",
    ending: Offsets = "latest",
    options: Mapping[str, object] = {},
) -> DataFrame:
    """Return the messages of a topic, or of several with names separated by commas, as a frame.

    The frame has the messages that exist now, in every query over it. It reads the files of the
    hub, which every executor must see under the same path. If messages were compacted meanwhile,
    the native reader fails, and Python reads what is left. Without `hub`, it is that of the
    `Topic`, or the one of the settings.

    `columns` are the columns to read, in this order; all but ``headers`` by default. With
    `value_schema`, a struct type of Spark or its DDL text, values are JSON objects, and the column
    ``value`` is what Spark's `from_json` makes of them. `options` are other options of the data
    source `tailrace` for batches, by their names. `ConfigError` and `InvalidValue` say what is
    valid.
    """
    name = topic.name if isinstance(topic, Topic) else topic
    given = {"startingOffsets": _text(starting), "endingOffsets": _text(ending)} | {
        option: _text(value) for option, value in options.items()
    }
    wanted = {"hub": _directory(topic, hub), "subscribe": name}
    chosen = read_options(given | wanted, ReadMode.BATCH)
    schema = _schema(columns, chosen)
    ranges = plan_batch(chosen)
    if value_schema is None or _VALUE not in schema.names:
        return _records(spark, ranges, schema, chosen)
    struct = _struct(value_schema)
    corrupt = str(spark.conf.get("spark.sql.columnNameOfCorruptRecord"))
    if corrupt in struct.names or not is_alike(struct):
        frame = _records(spark, ranges, schema, chosen)
        return frame.withColumn(_VALUE, functions.from_json(_as_text(_VALUE), struct))
    return _parsed(spark, ranges, schema, struct, chosen)


def _text(value: object) -> str:
    """Return an option as the data source takes it."""
    if isinstance(value, Mapping):
        return json.dumps({topic: dict(offsets) for topic, offsets in value.items()})
    return str(value).lower() if isinstance(value, bool) else str(value)


def _directory(topic: object, hub: str | os.PathLike[str] | Hub | None) -> str:
    if isinstance(hub, Hub):
        return hub.backend.name
    if hub is None and isinstance(topic, Topic):
        return topic.view.backend.name
    return os.fspath(load().hub.path if hub is None else hub)


def _schema(columns: Sequence[str] | None, options: ReadOptions) -> StructType:
    if columns is None:
        return spark_schema(options.include_headers)
    for name in columns:
        if name not in COLUMNS or isinstance(columns, str):
            raise InvalidValue("columns", columns, f"a list of {', '.join(COLUMNS)}")
    if len(set(columns)) < len(columns) or not columns:
        raise InvalidValue("columns", columns, "one column or more, each once")
    return StructType(list(map(column_field, columns)))


def _struct(value_schema: StructType | str) -> StructType:
    kind = StructType.fromDDL(value_schema) if isinstance(value_schema, str) else value_schema
    if not isinstance(kind, StructType):
        raise InvalidValue("value_schema", kind, "a StructType, or DDL such as 'id int'")
    return kind


def _as_text(column: str) -> Any:
    return functions.col(column).cast("string")


def _records(
    spark: SparkSession, ranges: Sequence[ReadRange], schema: StructType, options: ReadOptions
) -> DataFrame:
    """Return a frame with the bytes of the values."""
    if not ranges:
        return spark.createDataFrame([], schema)
    if has_native_reader(spark):
        return native_frame(spark, ranges, schema, include_control=options.include_control)
    plans = _plans(spark, ranges, options)
    task = partial(_read_columns, plans=plans, schema=schema, options=options)
    return _one_row_per_task(spark, plans).mapInArrow(task, schema)


def _parsed(
    spark: SparkSession,
    ranges: Sequence[ReadRange],
    schema: StructType,
    value_schema: StructType,
    options: ReadOptions,
) -> DataFrame:
    """Return a frame with structs as values. Spark parses those values that Arrow refuses."""
    struct: Any = _nullable(value_schema)
    shown = [
        StructField(each.name, struct) if each.name == _VALUE else each for each in schema.fields
    ]
    if not ranges:
        return spark.createDataFrame([], StructType(shown))
    made = StructType([*shown, StructField(_LEFT, BinaryType())])
    plans = _plans(spark, ranges, options)
    task = partial(_read_parsed, plans=plans, schema=schema, value_schema=struct, options=options)
    frame = _one_row_per_task(spark, plans).mapInArrow(task, made)
    left = functions.col(_LEFT)
    value = functions.when(left.isNull(), functions.col(_VALUE)).otherwise(
        functions.from_json(_as_text(_LEFT), struct)
    )
    return frame.select(
        *(value.alias(_VALUE) if name == _VALUE else functions.col(name) for name in schema.names)
    )


def _nullable(kind: Any) -> Any:
    """Return a type without constraints on nulls, as the result of `from_json` has none."""
    return StructType.fromJson(_without_constraints(json.loads(kind.json())))


def _without_constraints(described: Any) -> Any:
    if isinstance(described, list):
        return [_without_constraints(each) for each in described]
    if not isinstance(described, dict):
        return described
    free = {name: _without_constraints(each) for name, each in described.items()}
    return free | {name: True for name in ("nullable", "containsNull") if name in free}


def _plans(
    spark: SparkSession, ranges: Sequence[ReadRange], options: ReadOptions
) -> tuple[bytes, ...]:
    """Return the ranges of each task, pickled, because a task unpickles only its own.

    A task costs several milliseconds. So there are no more tasks than cores, unless a task would
    read more than `JOINED_BYTES_MAX`, or the options ask for more.
    """
    # A client of Spark Connect does not know the cores.
    cores = len(ranges) if is_remote() else spark.sparkContext.defaultParallelism
    by_size = -(-sum(each.bytes for each in ranges) // JOINED_BYTES_MAX)
    tasks = max(cores, by_size, options.partitions_min)
    return tuple(map(pickle.dumps, join_ranges(ranges, tasks)))


def _one_row_per_task(spark: SparkSession, plans: Sequence[bytes]) -> DataFrame:
    return spark.range(0, len(plans), 1, len(plans))


def _read_columns(
    batches: Iterator[pa.RecordBatch],
    plans: Sequence[bytes],
    schema: StructType,
    options: ReadOptions,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges of the tasks whose numbers are given."""
    with hide_traceback():
        for wanted in _own_ranges(batches, plans):
            records = read_records(wanted, hub=options.hub, control=options.include_control)
            yield from map(ToSpark(schema, wanted.partition), records)


def _read_parsed(
    batches: Iterator[pa.RecordBatch],
    plans: Sequence[bytes],
    schema: StructType,
    value_schema: StructType,
    options: ReadOptions,
) -> Iterator[pa.RecordBatch]:
    """Yield the records with their values parsed, and the values that are left to Spark."""
    parse = JsonValues(value_schema)
    with hide_traceback():
        for rows in _read_columns(batches, plans, schema, options):
            at = rows.schema.names.index(_VALUE)
            columns: list[Any] = list(rows.columns)
            columns[at], left = parse(columns[at])
            names = [*rows.schema.names, _LEFT]
            yield pa.RecordBatch.from_arrays([*columns, left], names=names)


def _own_ranges(batches: Iterator[pa.RecordBatch], plans: Sequence[bytes]) -> Iterator[ReadRange]:
    freeze_loaded_objects()
    for batch in batches:
        for number in batch.column(0).to_numpy():
            ranges: list[ReadRange] = pickle.loads(plans[number])
            yield from ranges
