"""Reading topics as they are at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tailrace.spark.admission import Lag, Loss, edge_of, look
from tailrace.spark.columns import check_read
from tailrace.spark.hubs import hub_at, log_of
from tailrace.spark.options import Reading, read_options
from tailrace.spark.plainly import plainly
from tailrace.spark.ranges import plan
from tailrace.spark.tasks import read_task, tasks_of

TASK_BYTES_MAX: Final = 128 << 20
"""A partition with more than this is read by several tasks."""


class BatchReader(DataSourceReader):
    """Reads all streams at once, each by one task or more. Tasks have no order among them."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options, Reading.BATCH)
        self._schema = check_read(schema)

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        options = self._options
        loss = Loss(options.fail_on_data_loss)
        with plainly():
            hub = hub_at(options.hub)
            log = log_of(hub)
            lags = []
            for topic in options.subscribed(hub.topics()):
                held = look(hub, topic)
                starts = edge_of(log, held, options.starting, loss)
                ends = edge_of(log, held, options.ending, loss)
                lags += [Lag(held.partition(each), starts[each], ends[each]) for each in starts]
            waiting = [lag for lag in lags if lag.at < lag.end]
            return tasks_of(plan(log, waiting, options.partitions_min, TASK_BYTES_MAX))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        return read_task(partition, self._schema)
