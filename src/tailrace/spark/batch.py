"""Reading topics as they are at one time, as a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tailrace.backend.capabilities import HasSegments
from tailrace.spark.admission import (
    DataLossPolicy,
    Lag,
    offsets_of_spec,
    split_lags,
    take_snapshot,
)
from tailrace.spark.columns import check_read
from tailrace.spark.hubs import hub_at, log_of
from tailrace.spark.options import ReadMode, ReadOptions, read_options
from tailrace.spark.ranges import ReadRange, plan_ranges
from tailrace.spark.reading.filters import PushedFilters, needs_rows, push_filters
from tailrace.spark.tasks import native_tasks_of, read_task, tasks_of
from tailrace.spark.tracebacks import hide_traceback

TASK_BYTES_MAX: Final = 128 << 20
"""A partition with more bytes than this is read by several tasks."""


Narrow: TypeAlias = Callable[[HasSegments, list[Lag]], list[Lag]]
"""Leaves out what a query does not need."""


def plan_batch(options: ReadOptions, narrow: Narrow = lambda _, lags: lags) -> list[ReadRange]:
    """Return the ranges that hold what exists now of the topics of a read, one for each task."""
    loss = DataLossPolicy(options.fail_on_data_loss)
    hub = hub_at(options.hub, "ro")
    log = log_of(hub)
    lags = []
    for topic in options.subscribed(hub.topics()):
        snapshot = take_snapshot(hub, topic, options.assigned.get(topic))
        starts = offsets_of_spec(log, snapshot, options.starting, loss)
        ends = offsets_of_spec(log, snapshot, options.ending, loss)
        lags += [Lag(snapshot.partition(each), starts[each], ends[each]) for each in starts]
    waiting = [lag for lag in lags if lag.at < lag.end]
    parts = split_lags(log, narrow(log, waiting), options.records_max)
    return plan_ranges(log, parts, options.partitions_min, TASK_BYTES_MAX)


class TaskReader(Enum):
    """The reader of the tasks: this process, or Java with the native reader."""

    PYTHON = auto()
    JAVA = auto()


class BatchReader(DataSourceReader):
    """Reads all partitions at once, each by one task or more. Tasks have no order."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        task_reader: TaskReader = TaskReader.PYTHON,
    ) -> None:
        self._options = read_options(options, ReadMode.BATCH)
        self._schema = check_read(schema)
        self._task_reader = task_reader

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        with hide_traceback():
            ranges = plan_batch(self._options, self._narrowed)
            if self._task_reader is TaskReader.JAVA:
                return native_tasks_of(ranges, control=self._options.include_control)
            return tasks_of(ranges)

    def _narrowed(self, log: HasSegments, lags: list[Lag]) -> list[Lag]:
        """Return the lags that the query needs."""
        return lags

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        options = self._options
        return read_task(partition, self._schema, hub=options.hub, control=options.include_control)


class FilteringReader(BatchReader):
    """Reads only records that pass the filters of the query.

    Spark 4.3 keeps what a reader planned for later queries of the same DataFrame, other filters or
    none. So this reader is only for sessions that plan each query anew: see
    `tailrace.spark.reading.registration`.
    """

    _filters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remember the filters that this reader applies, and return the others.

        The native reader checks no rows, so Spark applies the filters that need it too.
        """
        with hide_traceback():
            self._filters, rest = push_filters(filters)
            if self._task_reader is TaskReader.JAVA:
                rest += [each for each in filters if each not in rest and needs_rows(each)]
        return rest

    def _narrowed(self, log: HasSegments, lags: list[Lag]) -> list[Lag]:
        return self._filters.narrow(log, lags)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task that pass the filters."""
        return map(self._filters.rows, super().read(partition))
