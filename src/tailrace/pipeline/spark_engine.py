"""The Spark engine: a plan is a Spark job, a part of it a task."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tailrace.hub import Hub
from tailrace.pipeline.chain import Chain
from tailrace.pipeline.deliver import Covered, Report, covered
from tailrace.pipeline.engine import Assignment, DirectEngine, Work
from tailrace.pipeline.executing import (
    COLUMNS,
    PREFIX,
    REPORTS,
    ROWS,
    Job,
    Task,
    read,
    records_of_rows,
    transform,
    write,
    write_rows,
)
from tailrace.pipeline.namespace import ALL
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import Part
from tailrace.pipeline.rows import Rows
from tailrace.pipeline.sql import Sql
from tailrace.pipeline.writer import Failure, FrameWriter, Staged, WriterSession
from tailrace.spark.hubs import log_of
from tailrace.spark.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_S: Final = 0.25
"""How long it takes at most until tasks learn that they are to stop."""


class SparkEngine:
    """Carries out plans as Spark jobs: a part is a task."""

    def __init__(self, spark: SparkSession, hub: Hub, directory: Path) -> None:
        self._spark = spark
        self._hub = hub
        self._log = log_of(hub)
        self._directory = directory
        self._direct = DirectEngine(hub)
        self._stops = itertools.count()

    @property
    def tasks(self) -> int:
        """As many as Spark runs side by side."""
        return int(self._spark.sparkContext.defaultParallelism)

    def run(
        self, work: Work, parts: Sequence[Assignment], stopping: threading.Event
    ) -> list[Report]:
        """One job with a task for each part."""
        with self._job(work, parts, stopping) as job:
            if isinstance(work.writer, FrameWriter):
                return self._save(job, work.writer)
            rows = self._reports(job).collect()
        decode = msgspec.msgpack.Decoder(Report).decode
        return [decode(bytes(row["report"])) for row in rows]

    def open(self, work: Work, part: Part) -> WriterSession:
        """An attempt in the driver; into a sink of Spark's it is a job for each write."""
        if isinstance(work.writer, FrameWriter):
            return _FrameSession(self, work, part)
        return self._direct.open(work, part)

    def singly(self, work: Work, part: Assignment) -> Iterator[Covered]:
        """The records of a part, through Spark where the chain needs it."""
        if not work.chain.needs_spark:
            yield from self._direct.singly(work, part)
            return
        with self._job(work, [part], threading.Event()) as job:
            table = self._frame(job).toArrow()
        at = part.part.start
        for rows, _ in covered(records_of_rows(table), part.part.offsets, ()):
            for offset, indices in itertools.groupby(
                range(len(rows)), key=rows.offsets.__getitem__
            ):
                yield Covered(rows.take(list(indices)), Offsets(at, offset + 1))
                at = offset + 1

    def save_part(self, work: Work, part: Part) -> None:
        """Let Spark save the rows of a part; what it raises is the sink's or a record's."""
        with self._job(work, [Assignment(part, ())], threading.Event()) as job:
            assert isinstance(work.writer, FrameWriter)
            work.writer.save(_columns(self._frame(job)))

    @contextmanager
    def _job(
        self, work: Work, parts: Sequence[Assignment], stopping: threading.Event
    ) -> Iterator[Job]:
        stop_file = self._directory / f"stop-{work.epoch}-{work.round}-{next(self._stops)}"
        tasks = tuple(Task(part, tuple(done), self._range(part)) for part, done in parts)
        over = threading.Event()
        watcher = threading.Thread(
            target=_touch_when, args=(stopping, over, stop_file), daemon=True
        )
        watcher.start()
        try:
            yield Job(work, tasks, self._hub.backend.name, str(stop_file))
        finally:
            over.set()
            watcher.join()
            stop_file.unlink(missing_ok=True)

    def _range(self, part: Part) -> Range:
        extents = self._log.extents(part.where, part.start, part.end)
        return Range(part.where, part.start, part.end, tuple(extents))

    def _one_row_a_task(self, job: Job) -> DataFrame:
        count = len(job.tasks)
        return self._spark.range(0, count, 1, count)

    def _reports(self, job: Job) -> DataFrame:
        """A frame whose evaluation writes."""
        chain = job.work.chain
        if not chain.needs_spark:
            return self._one_row_a_task(job).mapInArrow(partial(write, job=job), REPORTS)
        *before, last = _steps(chain)
        rows = self._through(job, before)
        return rows.mapInArrow(partial(write_rows, job=job, chain=last[0]), REPORTS)

    def _frame(self, job: Job) -> DataFrame:
        """The rows of a job as they come out of the whole chain."""
        return self._through(job, _steps(job.work.chain))

    def _through(self, job: Job, steps: Sequence[tuple[Chain, Sql | None]]) -> DataFrame:
        frame = self._one_row_a_task(job)
        for number, (chain, sql) in enumerate(steps):
            following = ALL if sql is None else sql.namespace
            step: Any = partial(read, job=job, chain=chain, following=following)
            if number:
                step = partial(transform, chain=chain, following=following)
            frame = frame.mapInArrow(step, ROWS)
            if sql is not None:
                frame = _selected(frame, sql)
        return frame

    def _save(self, job: Job, writer: FrameWriter) -> list[Report]:
        writer.save(_columns(self._frame(job)))
        return [Report((task.part.offsets,)) for task in job.tasks]


def _columns(frame: DataFrame) -> DataFrame:
    """Rows under the names that a record's columns have everywhere; a refused one is an error."""
    from pyspark.sql import functions as f

    error = f.col(PREFIX + "error")
    checked = frame.where(f.when(error.isNull(), True).otherwise(f.raise_error(error)))
    named = checked.select(*(f.col(PREFIX + name).alias(name) for name in COLUMNS))
    return named.withColumn("timestamp", f.timestamp_millis("timestamp")).drop("applies", "error")


def _steps(chain: Chain) -> list[tuple[Chain, Sql | None]]:
    """A chain as functions to run in Python, each followed by one Spark SQL; but the last."""
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
    """The rows with documents as an expression of Spark SQL leaves them, and without those that
    its condition does not hold for."""
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


def _touch_when(stopping: threading.Event, over: threading.Event, file: Path) -> None:
    while not over.wait(LOOK_S):
        if stopping.is_set():
            file.touch()
            return


class _FrameSession:
    """An attempt in the driver at a part of a plan for a sink of Spark's."""

    def __init__(self, engine: SparkEngine, work: Work, part: Part) -> None:
        self._engine = engine
        self._work = work
        self._part = part

    def applied(self) -> Sequence[Offsets]:
        """A sink of Spark's cannot tell."""
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        """Let Spark read and save them."""
        if len(rows):
            self._engine.save_part(self._work, Part(self._part.partition, *offsets))
        return ()

    def finish(self) -> Sequence[Staged]:
        """Nothing is staged."""
        return ()

    def close(self) -> None:
        """Nothing is held."""
