"""The data source `tailrace`: topics that Spark reads and writes, in batches and as streams.

Spark creates one for every query, in a separate process.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tailrace.spark.tracebacks import hide_traceback

FILTERS: Final = "tailrace.filters"
"""The option that `TopicTables.java` adds if the source serves one scan only."""

NATIVE: Final = "tailrace.native"
"""The option that `TopicTables.java` adds if the native reader reads the tasks."""


class TailraceSource(DataSource):
    """The data source. Spark finds it by its name, in the package `pyspark_tailrace`.

    To find it, Spark imports this module in a process that needs nothing else of Tailrace, so other
    modules are imported when they are first used.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format("tailrace")``."""
        return "tailrace"

    def schema(self) -> StructType:
        """Return all columns. The topics must exist, so that `load` reports a wrong name."""
        with hide_traceback():
            from tailrace.spark.admission import take_snapshot
            from tailrace.spark.columns import spark_schema
            from tailrace.spark.hubs import hub_at
            from tailrace.spark.options import ReadMode, read_options

            options = read_options(self.options, ReadMode.EITHER)
            hub = hub_at(options.hub, "ro")
            for topic in options.topics:
                take_snapshot(hub, topic, options.assigned.get(topic))
            return spark_schema(options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch. It applies filters if this source serves one scan only."""
        with hide_traceback():
            from tailrace.spark.batch import BatchReader, FilteringReader, TaskReader

            options = dict(self.options)
            by = TaskReader.PYTHON if options.pop(NATIVE, None) is None else TaskReader.JAVA
            if options.pop(FILTERS, None) is None:
                return BatchReader(options, schema, by)
            return FilteringReader(options, schema, by)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a stream."""
        with hide_traceback():
            from tailrace.spark.stream import StreamReader

            return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a batch."""
        with hide_traceback():
            from tailrace.spark.sink import BatchWriter

            return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of a stream."""
        with hide_traceback():
            from tailrace.spark.sink import StreamWriter

            return StreamWriter(self.options, schema, overwrite)
