"""The Spark engine: a plan is a Spark job, a part of the plan is a task."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tailrace.errors import BackendUnavailable
from tailrace.hub.hub import Hub
from tailrace.pipeline.engine.direct import DirectEngine, attempt_of
from tailrace.pipeline.engine.driver import hub_directory
from tailrace.pipeline.engine.executor import PartTask, PlanJob, records_of_rows, whole_records
from tailrace.pipeline.engine.executors import Executors
from tailrace.pipeline.engine.job_name import job_name, named_jobs
from tailrace.pipeline.engine.sent_records import (
    TaskFailure,
    cut_part,
    group_parts,
    pack,
    unpack,
)
from tailrace.pipeline.engine.spark_frames import CountedRows, JobFrames, record_columns
from tailrace.pipeline.offsets import Offsets, subtract_ranges
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.writer import FrameWriter, RefusedRecord, Staged, Writer, WriterSession
from tailrace.pipeline.writing.attempt import (
    AttemptReport,
    CoveredRows,
    make_attempt,
)
from tailrace.pipeline.writing.fault import Fault
from tailrace.pipeline.writing.placement import WorkPlacement
from tailrace.pipeline.writing.plan import PlanPart
from tailrace.pipeline.writing.plan_engine import PendingPart, PlanRound
from tailrace.spark.cluster.application import while_running
from tailrace.spark.cluster.executors import limited_wait_for_executors
from tailrace.spark.hubs import log_of
from tailrace.spark.java_errors import java_outage
from tailrace.spark.ranges import ReadRange
from tailrace.topic.reading import batches_within

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

POLL_S: Final = 0.25
"""The longest time until tasks learn that they are to stop."""


class SparkEngine:
    """Executes plans as Spark jobs, one task for each part."""

    def __init__(self, spark: SparkSession, hub: Hub, log: str, directory: Path) -> None:
        self._spark = spark
        self._hub = hub
        self._log = log_of(hub)
        self._directory = directory
        self._direct = DirectEngine(hub)
        self._stops = itertools.count()
        self.executors = Executors(spark.sparkContext, hub, log, directory)

    @property
    def tasks(self) -> int:
        """The number of tasks that Spark runs in parallel."""
        context = self._spark.sparkContext
        with while_running(context):
            return int(context.defaultParallelism)

    def place(self, name: str, writer: Writer, stopping: threading.Event) -> WorkPlacement:
        """Return where the work of a writer is done; ask the executors if that is not known."""
        with while_running(self._spark.sparkContext):
            return self.executors.placement(name, writer, stopping)

    def run(
        self, plan_round: PlanRound, parts: Sequence[PendingPart], stopping: threading.Event
    ) -> list[AttemptReport]:
        """Run a job with a task for each part.

        If records or rows travel between driver and executors, the parts are cut to a number of
        bytes, and run in several jobs.
        """
        placement = self.place(plan_round.name, plan_round.writer, stopping)
        if isinstance(plan_round.writer, FrameWriter):
            self._check_shared(placement)
            reports = self._in_groups(plan_round, parts, placement, stopping, self._save)
        elif placement.driver_writes:
            reports = self._in_groups(plan_round, parts, placement, stopping, self._write_here)
        else:
            reports = self._in_groups(plan_round, parts, placement, stopping, self._write_there)
        if any(report.fault is Fault.OUTAGE for report in reports):
            self.executors.forget()
        return reports

    def _check_shared(self, placement: WorkPlacement) -> None:
        """Raise `BackendUnavailable` if Spark would write into different directories of a name."""
        if placement.driver_writes:
            self.executors.forget()
            raise BackendUnavailable("; ".join(placement.notes))

    def open(self, plan_round: PlanRound, part: PlanPart) -> WriterSession:
        """Begin an attempt in the driver; for a sink of Spark, each write is a job."""
        if isinstance(plan_round.writer, FrameWriter):
            return _FrameSession(self, plan_round, part)
        return self._direct.open(plan_round, part)

    def one_at_a_time(self, plan_round: PlanRound, part: PendingPart) -> Iterator[CoveredRows]:
        """Yield the records of a part, through Spark if the chain needs it. Each covers the dropped
        records before it, but none that is done."""
        if not plan_round.chain.needs_spark:
            yield from self._direct.one_at_a_time(plan_round, part)
            return
        pending = deque(subtract_ranges(part.part.offsets, part.done))
        start = part.part.start
        while start < part.part.end:
            left = PlanPart(part.part.partition, start, part.part.end)
            cut = PendingPart(cut_part(self._log, left), part.done)
            for rows, offset in self._rows_of_records(plan_round, cut):
                while pending[0].end <= offset:
                    pending.popleft()
                first, end = pending[0]
                yield CoveredRows(rows, Offsets(first, offset + 1))
                pending[0] = Offsets(offset + 1, end)
            start = cut.part.end

    def _rows_of_records(
        self, plan_round: PlanRound, part: PendingPart
    ) -> Iterator[tuple[Rows, int]]:
        """Let Spark transform a part; yield the rows of each record, and its offset."""
        stopping = threading.Event()
        placement = self.place(plan_round.name, plan_round.writer, stopping)
        with self._job(plan_round, [part], placement, stopping) as job:
            table = self._frames(job).rows().toArrow()
        for rows in map(Rows, records_of_rows(table)):
            for offset, indices in itertools.groupby(
                range(len(rows)), key=rows.offsets.__getitem__
            ):
                yield rows.take(list(indices)), offset

    def save_part(self, plan_round: PlanRound, part: PlanPart) -> None:
        """Let Spark save the rows of a part. Raises the errors of the sink or of a record."""
        stopping = threading.Event()
        placement = self.place(plan_round.name, plan_round.writer, stopping)
        self._check_shared(placement)
        with self._job(plan_round, [PendingPart(part, ())], placement, stopping) as job:
            self._save(job, stopping)

    def _in_groups(
        self,
        plan_round: PlanRound,
        parts: Sequence[PendingPart],
        placement: WorkPlacement,
        stopping: threading.Event,
        run: Callable[[PlanJob, threading.Event], list[AttemptReport]],
    ) -> list[AttemptReport]:
        """Run all parts in jobs of a limited size; in one job if only tasks have the records."""
        groups: Iterable[Sequence[PendingPart]] = [parts]
        if placement.driver_reads or placement.driver_writes:
            cut = [PendingPart(cut_part(self._log, part), done) for part, done in parts]
            groups = group_parts(self._log, cut)
        reports: list[AttemptReport] = []
        for group in groups:
            if reports and stopping.is_set():
                reports += [AttemptReport(stopped=True) for _ in group]
                continue
            with self._job(plan_round, group, placement, stopping) as job:
                reports += run(job, stopping)
        return reports

    @contextmanager
    def _job(
        self,
        plan_round: PlanRound,
        parts: Sequence[PendingPart],
        placement: WorkPlacement,
        stopping: threading.Event,
    ) -> Iterator[PlanJob]:
        """Yield a job for the block to run; `NoExecutors` if there are none."""
        stop_file = (
            self._directory / f"stop-{plan_round.epoch}-{plan_round.number}-{next(self._stops)}"
        )
        tasks = tuple(
            PartTask(part, tuple(done), None if placement.driver_reads else self._range(part))
            for part, done in parts
        )
        ended = threading.Event()
        watcher = threading.Thread(
            target=_touch_when, args=(stopping, ended, stop_file), daemon=True
        )
        watcher.start()
        shared = self.executors.directories
        context = self._spark.sparkContext
        name = job_name(plan_round.name, [part for part, _ in parts])
        try:
            with limited_wait_for_executors(context), named_jobs(context, name):
                yield PlanJob(
                    plan_round, tasks, str(hub_directory(self._hub)), str(stop_file), shared
                )
        finally:
            ended.set()
            watcher.join()
            stop_file.unlink(missing_ok=True)

    def _range(self, part: PlanPart) -> ReadRange:
        extents = self._log.extents(part.where, part.start, part.end)
        return ReadRange(part.where, part.start, part.end, tuple(extents))

    def _frames(self, job: PlanJob) -> JobFrames:
        if any(task.range is not None for task in job.tasks):
            return JobFrames(self._spark, job, None)
        parts = [task.part for task in job.tasks]
        records = [
            pack(batches_within(self._log, part.where, part.start, part.end)) for part in parts
        ]
        return JobFrames(self._spark, job, records)

    def _write_there(self, job: PlanJob, stopping: threading.Event) -> list[AttemptReport]:
        """Let the executors write."""
        rows = self._frames(job).reports().collect()
        decode = msgspec.msgpack.Decoder(AttemptReport).decode
        return [decode(bytes(row["report"])) for row in rows]

    def _write_here(self, job: PlanJob, stopping: threading.Event) -> list[AttemptReport]:
        """Let the executors transform, and write the rows in this process, part by part."""
        plan_round = job.round
        unchanged = not plan_round.chain.functions
        if unchanged and all(task.range is None for task in job.tasks):
            parts = [PendingPart(task.part, task.done) for task in job.tasks]
            return self._direct.run(plan_round, parts, stopping)
        sent: list[list[Row]] = [[] for _ in job.tasks]
        for row in self._frames(job).sent().collect():
            sent[row["part"]].append(row)
        return [
            make_attempt(
                plan_round.writer,
                Chain(controls=True),
                attempt_of(plan_round, task.part, self._hub),
                task.done,
                partial(_sent_records, rows),
                stopping.is_set,
            )
            for task, rows in zip(job.tasks, sent, strict=True)
        ]

    def _save(self, job: PlanJob, stopping: threading.Event) -> list[AttemptReport]:
        """Let Spark save all rows of a job; `BackendUnavailable` if its sink cannot be reached."""
        writer, saved = job.round.writer, CountedRows(record_columns(self._frames(job).rows()))
        assert isinstance(writer, FrameWriter)
        try:
            writer.save(saved.frame)
        except Exception as error:
            outage = java_outage(error)
            if outage is None:
                raise
            raise BackendUnavailable(outage) from error
        first, *rest = (task.part.offsets for task in job.tasks)
        # Spark counts the rows of the job.
        return [AttemptReport((first,), rows=saved.count()), *(AttemptReport((r,)) for r in rest)]


def _sent_records(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield the records of rows that a task sent. Raises the error that ended the task."""
    return whole_records(_unpacked(rows))


def _unpacked(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    for row in rows:
        yield from unpack(row["rows"])
        if row["failure"] is not None:
            raise msgspec.msgpack.decode(bytes(row["failure"]), type=TaskFailure).error()


def _touch_when(stopping: threading.Event, ended: threading.Event, file: Path) -> None:
    while not ended.wait(POLL_S):
        if stopping.is_set():
            file.touch()
            return


class _FrameSession:
    """An attempt in the driver at a part of a plan, for a sink of Spark."""

    def __init__(self, engine: SparkEngine, plan_round: PlanRound, part: PlanPart) -> None:
        self._engine = engine
        self._round = plan_round
        self._part = part

    def applied(self) -> Sequence[Offsets]:
        """Return (): a sink of Spark does not store offsets."""
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        """Let Spark read and save the rows."""
        if len(rows):
            self._engine.save_part(self._round, PlanPart(self._part.partition, *offsets))
        return ()

    def finish(self) -> Sequence[Staged]:
        """Return (): nothing is staged."""
        return ()

    def close(self) -> None:
        """Do nothing: the session has no resources."""
