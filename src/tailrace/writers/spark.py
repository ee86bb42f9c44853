"""`spark`: whatever Spark can write to, by the name of its format."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from tailrace.errors import ConfigError, InvalidValue
from tailrace.message import Mode, Op
from tailrace.pipeline.writer import FrameWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPS: Final = tuple(op.name.lower() for op in Op)
_MODES: Final = tuple(mode.name.lower() for mode in Mode)


class SparkWriter(FrameWriter, frozen=True):
    """Appends to any sink of Spark, at least once. Only the Spark engine can run it.

    With a `schema` the sink gets its columns, and those of `meta`; without one the columns key,
    value, op, mode, offset, timestamp and namespace, the value being the document's JSON.
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
            description="The columns of the documents, in the words of Spark SQL. A document that"
            " does not fit is an error.",
            examples=["id BIGINT, customer STRING, total DECIMAL(10, 2)"],
        ),
    ] = ""
    meta: Annotated[
        bool,
        Meta(
            description="With a schema, adds the columns _op, _offset, _timestamp and _namespace."
            " Without them a delete is an error.",
        ),
    ] = True

    def __post_init__(self) -> None:
        """Refuse to write nowhere."""
        if not self.format.strip():
            raise InvalidValue("format", self.format, "the name of one, such as delta or jdbc")

    def check(self) -> str:
        """Look whether Spark is there; the format is known only to a running one."""
        if importlib.util.find_spec("pyspark") is None:
            raise ConfigError(
                "the spark writer needs PySpark, which is not installed",
                "install it: pip install 'tailrace[spark]'",
            )
        return f"Spark writes the format {self.format}"

    def save(self, rows: DataFrame) -> None:
        """Append them."""
        frame(rows, self).write.format(self.format).options(**self.options).mode("append").save()


def frame(rows: DataFrame, writer: SparkWriter) -> DataFrame:
    """What Spark is to save of rows in the columns of `tailrace.log.schema.SCHEMA`."""
    from pyspark.sql import functions as sql

    namespace = rows["key"].cast("string")
    op, mode = _named(rows["op"], _OPS), _named(rows["mode"], _MODES)
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
            sql.lit("a delete would look like a row · set meta = true, or use opfilter")
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
