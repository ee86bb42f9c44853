"""What pipelines write to: ``writers.parquet("out/")``.

Each is a class of options. What it needs to write is loaded when it is first used for that.
"""

from __future__ import annotations

from tailrace.writers.file import FileWriter
from tailrace.writers.parquet import ParquetWriter
from tailrace.writers.spark import SparkWriter
from tailrace.writers.sql import SqlWriter
from tailrace.writers.topic import TopicWriter

__all__ = ["file", "parquet", "spark", "sql", "topic"]

file = FileWriter
parquet = ParquetWriter
spark = SparkWriter
sql = SqlWriter
topic = TopicWriter
