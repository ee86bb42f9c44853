"""The data source `tailrace`: topics for Spark to read and write, in batches and as streams.

Spark makes one of these for every query, in a process of its own.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tailrace.spark.plainly import plainly


class TailraceSource(DataSource):
    """Found by Spark under its name, through the package `pyspark_tailrace`.

    To find it Spark loads this module in a process that needs nothing else of ours, so the rest is
    loaded when it is used.
    """

    @classmethod
    def name(cls) -> str:
        """What people write in ``format("tailrace")``."""
        return "tailrace"

    def schema(self) -> StructType:
        """All columns. The topics must be there, so that a wrong name is known at `load`."""
        from tailrace.spark.admission import look
        from tailrace.spark.columns import spark_schema
        from tailrace.spark.hubs import hub_at
        from tailrace.spark.options import Reading, read_options

        with plainly():
            options = read_options(self.options, Reading.EITHER)
            hub = hub_at(options.hub)
            for topic in options.topics:
                look(hub, topic)
            return spark_schema(options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a batch."""
        from tailrace.spark.batch import BatchReader

        with plainly():
            return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads a stream."""
        from tailrace.spark.stream import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a batch."""
        from tailrace.spark.sink import BatchWriter

        with plainly():
            return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes a stream."""
        from tailrace.spark.sink import StreamWriter

        with plainly():
            return StreamWriter(self.options, schema, overwrite)
