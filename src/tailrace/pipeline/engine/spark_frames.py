"""The rows of a plan's job as Spark frames: one partition for each task, in order.

A frame reads, transforms and writes only when it is evaluated. Its steps are functions in Python
and the Spark SQL between them; none of them moves a row to another partition.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tailrace.pipeline.engine.executor import (
    COLUMNS,
    PREFIX,
    RECORDS,
    REPORTS,
    ROWS,
    SENT,
    PlanJob,
    read,
    send,
    send_rows,
    transform,
    write,
    write_rows,
)
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.namespace import ALL
from tailrace.pipeline.transform.sql import Sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT_S: Final = 10.0
"""How long to wait, after a job has ended, until Spark has counted its rows."""


class JobFrames:
    """The frames of one job. `records` are the packed records of each task, if the driver sends
    them; None if the tasks read the hub's files."""

    def __init__(self, spark: SparkSession, job: PlanJob, records: Sequence[bytes] | None) -> None:
        self._spark = spark
        self._job = job
        self._records = records

    def reports(self) -> DataFrame:
        """Return a frame of reports, which writes when it is evaluated."""
        job, chain = self._job, self._job.round.chain
        if not chain.needs_spark:
            return self._one_row_per_task().mapInArrow(partial(write, job=job), REPORTS)
        *before, last = _steps(chain)
        rows = self._through(before)
        return rows.mapInArrow(partial(write_rows, job=job, chain=last[0]), REPORTS)

    def sent(self) -> DataFrame:
        """Return the rows after the whole chain, packed, for the driver to write."""
        job, chain = self._job, self._job.round.chain
        if not chain.needs_spark:
            return self._one_row_per_task().mapInArrow(partial(send, job=job), SENT)
        *before, last = _steps(chain)
        return self._through(before).mapInArrow(partial(send_rows, chain=last[0]), SENT)

    def rows(self) -> DataFrame:
        """Return the rows after the whole chain."""
        return self._through(_steps(self._job.round.chain))

    def _one_row_per_task(self) -> DataFrame:
        count = len(self._job.tasks)
        if self._records is None:
            return self._spark.range(0, count, 1, count)
        rows = self._spark.sparkContext.parallelize([(each,) for each in self._records], count)
        return self._spark.createDataFrame(rows, RECORDS, verifySchema=False)

    def _through(self, steps: Sequence[tuple[Chain, Sql | None]]) -> DataFrame:
        frame = self._one_row_per_task()
        for number, (chain, sql) in enumerate(steps):
            following = ALL if sql is None else sql.namespace
            step: Any = partial(read, job=self._job, chain=chain, following=following)
            if number:
                step = partial(transform, chain=chain, following=following)
            frame = frame.mapInArrow(step, ROWS)
            if sql is not None:
                frame = _selected(frame, sql)
        return frame


class CountedRows:
    """Rows that Spark counts when it saves them, those of a task that runs twice once."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._observation: Any = Observation()
        self.frame = frame.observe(self._observation, f.count(f.lit(1)).alias("rows"))
        """The rows, to be saved once."""

    def count(self) -> int:
        """Return the number of rows that were saved; 0 if nothing has asked for them.

        Spark knows it soon after the job has ended.
        """
        known = self._observation._jo.future()
        deadline = time.monotonic() + COUNT_S
        while not known.isCompleted():
            if time.monotonic() > deadline:
                return 0
            time.sleep(0.005)
        return int(self._observation.get["rows"])


def record_columns(frame: DataFrame) -> DataFrame:
    """Return rows under the names of a record's columns; a refused record raises an error."""
    from pyspark.sql import functions as f

    error = f.col(PREFIX + "error")
    checked = frame.where(f.when(error.isNull(), True).otherwise(f.raise_error(error)))
    named = checked.select(*(f.col(PREFIX + name).alias(name) for name in COLUMNS))
    return named.withColumn("timestamp", f.timestamp_millis("timestamp")).drop("applies", "error")


def _steps(chain: Chain) -> list[tuple[Chain, Sql | None]]:
    """Return the chain as steps: functions to run in Python, then a Spark SQL, if any."""
    steps: list[tuple[Chain, Sql | None]] = []
    waiting: Chain | None = None
    for part in chain.parts():
        if isinstance(part, Sql):
            steps.append((waiting or Chain(controls=True), part))
            waiting = None
        else:
            waiting = part
    return [*steps, (waiting or Chain(controls=True), None)]


def _selected(frame: DataFrame, sql: Sql) -> DataFrame:
    """Return the rows for which the condition of a Spark SQL function holds, with its documents."""
    from pyspark.sql import functions as f

    document, value, applies = (PREFIX + name for name in ("document", "value", "applies"))
    parsed = f.from_json(f.col(value).cast("string"), sql.schema)
    parsed_frame = frame.withColumn(document, parsed)
    fields = parsed_frame.select(f"{document}.*").columns
    named = parsed_frame.select("*", *(f.col(f"{document}.`{name}`") for name in fields))
    if sql.where is not None:
        held = f.coalesce(f.expr(sql.where), f.lit(False))
        named = named.where(~f.col(applies) | held)
    chosen = ", ".join(f"`{name}`" for name in fields) if sql.select.strip() == "*" else sql.select
    selected = f.expr(f"to_json(struct({chosen}))").cast("binary")
    changed = f.when(f.col(applies), selected).otherwise(f.col(value))
    return named.withColumn(value, changed).select(*frame.columns)
