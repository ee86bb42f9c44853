"""The writers of pipelines, ``writers.parquet("out/")``, and the contract of a writer plug-in.

A writer is a class of options. The libraries that it writes with are imported at its first use. A
writer subclasses `Writer`; `Writer.open` begins an `Attempt` and returns a `WriterSession`.
`tailrace.pipeline.writer` holds the contract, and the three guarantees a writer can give.

To add a writer for another system, for example ClickHouse:

* Outside Tailrace, write a package with an entry point of the group ``tailrace.writers``, as
  ``docs/writing-plugins.md`` shows.
* In Tailrace, add ``clickhouse.py`` or a package here, add its class to ``_WRITERS`` of
  `tailrace.pipeline.definition.plugins` and to this module, and inherit `WriterContract` of
  ``tests/unit/writers/contract.py`` in its tests. ``docs/architecture.md`` has every step.

`topic` is the smallest model of a writer that stores rows and offsets together, `sql` the model for
a database, and `files` the model of a writer that stages.
"""

from __future__ import annotations

from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Document, RowError, Rows
from tailrace.pipeline.writer import (
    Attempt,
    FrameWriter,
    LocalSink,
    RefusedRecord,
    RewindRefused,
    SinkRefused,
    Staged,
    StagedLost,
    Writer,
    WriterSession,
)
from tailrace.writers.files.json_lines import FileWriter
from tailrace.writers.files.parquet import ParquetWriter
from tailrace.writers.spark import SparkWriter
from tailrace.writers.sql.writer import SqlWriter
from tailrace.writers.topic.writer import TopicWriter

__all__ = [
    "Attempt",
    "Document",
    "FrameWriter",
    "LocalSink",
    "Offsets",
    "RefusedRecord",
    "RewindRefused",
    "RowError",
    "Rows",
    "SinkRefused",
    "Staged",
    "StagedLost",
    "Writer",
    "WriterSession",
    "file",
    "parquet",
    "spark",
    "sql",
    "topic",
]

file = FileWriter
parquet = ParquetWriter
spark = SparkWriter
sql = SqlWriter
topic = TopicWriter
