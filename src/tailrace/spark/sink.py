"""Writing rows of Spark to topics, at least once, as Spark's Kafka sink does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tailrace.errors import ConfigError, InvalidValue
from tailrace.spark.columns import check_write, to_append
from tailrace.spark.hubs import hub_at
from tailrace.spark.options import WriteOptions, write_options
from tailrace.spark.plainly import plainly
from tailrace.spark.tasks import settle
from tailrace.topic.topic import Topic

APPEND_BYTES: Final = 8 << 20
"""About how much is stored in one step."""


class BatchWriter(DataSourceArrowWriter):
    """Appends what each task is given. A task that fails leaves what it had stored by then, and
    stores it again when Spark tries it again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = _checked(options, schema, overwrite)

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Append the rows of a task, in their order."""
        return _append_all(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """The same for each micro-batch. One that Spark repeats after a crash is stored again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = _checked(options, schema, overwrite)

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Append the rows of a task, in their order."""
        return _append_all(self._options, iterator)


def _checked(given: Mapping[str, str], schema: StructType, overwrite: bool) -> WriteOptions:
    """The options; refuses, before any task runs, what no task could write."""
    options = write_options(given)
    if overwrite:
        raise ConfigError("a topic cannot be overwritten", "valid: mode('append')")
    check_write(schema)
    if options.topic is not None:
        hub_at(options.hub).topic(options.topic)
    elif "topic" not in schema.names:
        raise ConfigError(
            "nothing says which topic to write to",
            "valid: option topic=orders, or a column 'topic' that names one for each row",
        )
    return options


def _append_all(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    """Append rows to the topic of the options, or each to the one it names."""
    settle()
    with plainly():
        hub = hub_at(options.hub)
        topics: dict[str, Topic[Any]] = {}
        for batch in batches:
            for name, rows in _by_topic(batch, options.topic):
                if name not in topics:
                    topics[name] = hub.topic(name)
                for piece in _pieces(rows):
                    topics[name].append(to_append(piece))
    return WriterCommitMessage()


def _by_topic(batch: pa.RecordBatch, only: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, without that column. The option wins, as in Spark's Kafka sink."""
    if "topic" not in batch.schema.names:
        assert only is not None
        yield only, batch
        return
    rows = batch.drop_columns(["topic"])
    if only is not None:
        yield only, rows
        return
    topics = batch["topic"]
    if topics.null_count:
        raise InvalidValue("column 'topic'", None, "the name of a topic in every row")
    for name in pc.unique(topics):
        yield name.as_py(), rows.filter(pc.equal(topics, name))


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, rows.num_rows * APPEND_BYTES // max(rows.nbytes, 1))
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)
