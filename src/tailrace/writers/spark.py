"""The `spark` writer: appends rows to any sink that Spark has a format for."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from tailrace.errors import ConfigError, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.message import MODE_NAMES, OP_NAMES, Op
from tailrace.pipeline.writer import FrameWriter, LocalSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class SparkWriter(FrameWriter, frozen=True):
    """Appends rows to any sink of Spark, at least once. Only the Spark engine can run it.

    With a `schema`, rows have its columns and those of `meta`. Without one, rows have the columns
    key, value, op, mode, offset, timestamp and namespace; the value is the document as JSON.
    """

    format: Annotated[
        str, Meta(description="The format, as in Spark's `write.format`.", examples=["json"])
    ]
    options: Annotated[
        dict[str, str],
        Meta(
            description="The options of the format, as in Spark's `write.options`.",
            examples=[{"path": "out-spark"}],
            extra={"secret": True, "sample": True},
        ),
    ] = msgspec.field(default_factory=dict)
    schema: Annotated[
        str,
        Meta(
            description="The columns of the documents, as a schema of Spark SQL. A document that"
            " does not match the schema is an error.",
            examples=["id BIGINT, customer STRING, total DECIMAL(10, 2)"],
        ),
    ] = ""
    meta: Annotated[
        bool,
        Meta(
            description="With a schema, add the columns _op, _offset, _timestamp and _namespace."
            " Without them, a delete is an error.",
        ),
    ] = True

    def __post_init__(self) -> None:
        """Check that a format is given."""
        if not self.format.strip():
            raise InvalidValue(
                "format", self.format, "the name of a Spark format, such as delta or jdbc"
            )

    def check(self) -> str:
        """Check that PySpark is installed. Only a running Spark knows its formats."""
        if importlib.util.find_spec("pyspark") is None:
            raise ConfigError(
                "the spark writer needs PySpark, which is not installed",
                "install it: pip install 'tailrace[spark]'",
            )
        return f"PySpark is installed, format {self.format}"

    def local_sink(self, hub: Hub) -> LocalSink | None:
        """Return the parent of the option `path`, if that is on a disk and not in a shared store.

        A path without a scheme is where Hadoop's default file system is.
        """
        path = urlsplit(self.options.get("path", ""))
        if not path.path or path.scheme not in ("", "file"):
            return None
        if not path.scheme and not _default_is_local():
            return None
        parent = os.path.dirname(os.path.abspath(path.path))
        os.makedirs(parent, exist_ok=True)
        return LocalSink(parent, executors_only=True)

    def save(self, rows: DataFrame) -> None:
        """Append the rows."""
        output_frame(rows, self).write.format(self.format).options(**self.options).mode(
            "append"
        ).save()


def _default_is_local() -> bool:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return True
    java: Any = context._jsc
    return str(java.hadoopConfiguration().get("fs.defaultFS") or "file:").startswith("file:")


def output_frame(rows: DataFrame, writer: SparkWriter) -> DataFrame:
    """Return the columns to save, from rows with the columns of `tailrace.log.schema.SCHEMA`."""
    from pyspark.sql import functions as sql

    namespace = rows["key"].cast("string")
    op, mode = _named(rows["op"], OP_NAMES), _named(rows["mode"], MODE_NAMES)
    value = rows["value"].cast("string")
    if not writer.schema:
        return rows.select(
            namespace.alias("key"),
            value.alias("value"),
            op.alias("op"),
            mode.alias("mode"),
            rows["offset"],
            rows["timestamp"],
            namespace.alias("namespace"),
        )
    if not writer.meta:
        refusal = sql.raise_error(
            sql.lit(
                "a delete would be indistinguishable from a row · set meta = true, or drop"
                " deletes with the function opfilter"
            )
        )
        value = sql.when(rows["op"] == int(Op.DELETE), refusal.cast("string")).otherwise(value)
    document = sql.from_json(value, writer.schema, {"mode": "FAILFAST"})
    meta = [
        op.alias("_op"),
        rows["offset"].alias("_offset"),
        rows["timestamp"].alias("_timestamp"),
        namespace.alias("_namespace"),
    ]
    shaped = rows.select(document.alias("document"), *meta)
    return shaped.select("document.*", *(shaped.columns[1:] if writer.meta else ()))


def _named(column: Column, names: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as sql

    return sql.element_at(sql.array(*map(sql.lit, names)), column.cast("int") + 1)
