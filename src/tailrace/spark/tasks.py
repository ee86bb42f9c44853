"""The tasks of a read.

Python reads a `ReadTask`. Java reads a `NativeTask`, and Python only if a file of it is missing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tailrace.log.control import messages_of
from tailrace.message import Partition
from tailrace.spark.columns import ToSpark
from tailrace.spark.frames.native import pack_plan
from tailrace.spark.ranges import ReadRange
from tailrace.spark.reading.access import read_here, read_replaced
from tailrace.spark.tracebacks import hide_traceback


class ReadTask(InputPartition):
    """A range that one task reads."""

    def __init__(self, wanted: ReadRange) -> None:
        super().__init__(wanted)

    @property
    def range(self) -> ReadRange:
        """The range."""
        wanted: ReadRange = self.value
        return wanted


class NativeTask(InputPartition):
    """A range that the native reader reads. `PlannedTask.java` decodes its pickled attributes, so
    they are of plain types."""

    def __init__(self, wanted: ReadRange, *, control: bool) -> None:
        super().__init__(pack_plan([wanted]))
        self.control = control
        self._bounds = (*wanted.partition, wanted.start, wanted.end)

    @property
    def unplanned(self) -> ReadRange:
        """The range, without the files that held it when it was planned."""
        topic, storage, number, start, end = self._bounds
        return ReadRange(Partition(topic, storage, number), start, end, ())


def tasks_of(ranges: Iterable[ReadRange]) -> list[InputPartition]:
    """Return a task for each range."""
    return [ReadTask(each) for each in ranges]


def native_tasks_of(ranges: Iterable[ReadRange], *, control: bool) -> list[InputPartition]:
    """Return a task of the native reader for each range; `control` as for `read_task`."""
    return [NativeTask(each, control=control) for each in ranges]


def read_task(
    task: InputPartition, schema: StructType, *, hub: str, control: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task, in Arrow columns of a schema, from the files of a hub.

    Opens the hub only if a compaction has replaced files since the task was planned. Control
    records are yielded only with `control`. If there is no task, Spark creates one of its own,
    which reads nothing.
    """
    if isinstance(task, ReadTask):
        freeze_loaded_objects()
        with hide_traceback():
            records = read_records(task.range, hub=hub, control=control)
            yield from map(ToSpark(schema, task.range.partition), records)
    elif isinstance(task, NativeTask):
        with hide_traceback():
            records = _messages(read_replaced(task.unplanned, hub), control)
            yield from map(ToSpark(schema, task.unplanned.partition), records)


def read_records(wanted: ReadRange, *, hub: str, control: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range from the files of a hub; control records only with `control`."""
    return _messages(read_here(wanted, hub), control)


def _messages(records: Iterator[pa.RecordBatch], control: bool) -> Iterator[pa.RecordBatch]:
    return records if control else map(messages_of, records)


@cache
def freeze_loaded_objects() -> None:
    """Exclude all loaded objects from garbage collection, once in each Python worker of Spark.

    A worker collects garbage after every task. Scanning all modules each time takes longer than a
    small task.
    """
    gc.collect()
    gc.freeze()
