"""What Spark's tasks read, and how."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tailrace.spark.columns import ToSpark
from tailrace.spark.plainly import plainly
from tailrace.spark.ranges import Range, read_range


class Task(InputPartition):
    """A range that one task reads."""

    def __init__(self, asked: Range) -> None:
        super().__init__(asked)

    @property
    def asked(self) -> Range:
        """The range."""
        asked: Range = self.value
        return asked


def tasks_of(ranges: Iterable[Range]) -> list[InputPartition]:
    """A task for each range."""
    return [Task(asked) for asked in ranges]


def read_task(task: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The records of a task, in Arrow columns of that schema. Opens no hub.

    Where there is no task, Spark makes one of its own that has nothing to read.
    """
    if isinstance(task, Task):
        settle()
        with plainly():
            yield from map(ToSpark(schema, task.asked.partition), read_range(task.asked))


@cache
def settle() -> None:
    """Once in each Python worker of Spark's: set aside, for garbage collection, all that is loaded.

    A worker collects garbage after every task, and would look through all modules each time; that
    takes longer than a small task does.
    """
    gc.collect()
    gc.freeze()
