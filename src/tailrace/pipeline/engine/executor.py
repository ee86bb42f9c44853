"""The code that runs on Spark executors: attempts, and functions before Spark SQL.

Executors do not open the hub unless a writer asks for it. They read the records from the files that
the plan names, or get them from the driver. A task checks that its host shares the directories that
it uses, because an executor may join after the others were asked.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tailrace.errors import BackendUnavailable
from tailrace.log.control import control_mask
from tailrace.log.schema import SCHEMA
from tailrace.pipeline.engine.probe import SharedDirectories
from tailrace.pipeline.engine.sent_records import TaskFailure, pack, unpack
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.pipeline.writer import Attempt
from tailrace.pipeline.writing.attempt import AttemptReport, covered_rows, make_attempt
from tailrace.pipeline.writing.fault import Fault
from tailrace.pipeline.writing.plan import PlanPart
from tailrace.pipeline.writing.plan_engine import ATTEMPTS_PER_ROUND, PlanRound
from tailrace.spark.hubs import hub_at
from tailrace.spark.ranges import ReadRange, read_range
from tailrace.spark.tasks import freeze_loaded_objects

COLUMNS = {
    "offset": ("BIGINT", pa.int64()),
    "timestamp": ("BIGINT", pa.int64()),
    "mode": ("INT", pa.int32()),
    "op": ("INT", pa.int32()),
    "key": ("BINARY", pa.binary()),
    "headers": ("MAP<STRING, BINARY>", pa.map_(pa.string(), pa.binary())),
    "value": ("BINARY", pa.binary()),
    "applies": ("BOOLEAN", pa.bool_()),
    "error": ("STRING", pa.string()),
}
"""The columns of records between two Spark steps.

`applies` is True if the next Spark SQL is for the record. A row with an `error` is a record that a
function refused; no row follows it.
"""

PREFIX = "tailrace_"
"""The prefix of these columns, so that fields of documents may have any name."""

ROWS = ", ".join(f"{PREFIX}{name} {kind}" for name, (kind, _) in COLUMNS.items())
REPORTS = "report BINARY"
RECORDS = "records BINARY"
SENT = "part INT, rows BINARY, failure BINARY"
"""The columns of rows that executors send to the driver: packed rows, or a packed `TaskFailure`."""

_UNSHARED = -1
"""The offset of the row that marks records which the executor cannot read."""

_ARROW = pa.schema([pa.field(PREFIX + name, kind) for name, (_, kind) in COLUMNS.items()])


@dataclass(frozen=True, slots=True)
class PartTask:
    """A part of a plan for one task: the range of its bytes, and the acknowledged offsets.

    `range` is None if the driver sends the records.
    """

    part: PlanPart
    done: Sequence[Offsets]
    range: ReadRange | None


@dataclass(frozen=True, slots=True)
class PlanJob:
    """All tasks of one plan. The driver creates `stop_file` to stop them early.

    `shared` are the directories that tasks must share with the driver; None on a local master.
    """

    round: PlanRound
    tasks: tuple[PartTask, ...]
    hub: str
    stop_file: str
    shared: SharedDirectories | None = None

    def stopping(self) -> bool:
        """True if the driver wants the tasks to stop."""
        return os.path.exists(self.stop_file)


def write(batches: Iterator[pa.RecordBatch], job: PlanJob) -> Iterator[pa.RecordBatch]:
    """Read, transform and write the part of this task; yield the report."""
    for batch in batches:
        task = _own_task(job)
        read = partial(_records_of_part, job, task, batch)
        yield _reported(_attempt(job, task, job.round.chain, read))


def write_rows(
    batches: Iterator[pa.RecordBatch], job: PlanJob, chain: Chain
) -> Iterator[pa.RecordBatch]:
    """Write rows that come from Spark SQL, after the rest of the chain; yield the report."""
    task = _own_task(job)
    yield _reported(_attempt(job, task, chain, lambda: whole_records(_records(batches))))


def send(batches: Iterator[pa.RecordBatch], job: PlanJob) -> Iterator[pa.RecordBatch]:
    """Read and transform the part of this task; yield the rows for the driver to write."""
    for batch in batches:
        yield from _sent(job.round.chain, _rows_of_part(job, batch))


def send_rows(batches: Iterator[pa.RecordBatch], chain: Chain) -> Iterator[pa.RecordBatch]:
    """Yield rows that come from Spark SQL, after the rest of the chain, for the driver to write."""
    yield from _sent(chain, map(Rows, whole_records(_records(batches))))


def read(
    batches: Iterator[pa.RecordBatch], job: PlanJob, chain: Chain, following: NamespaceFilter
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of this task's part after a chain, as input of Spark SQL."""
    for batch in batches:
        try:
            yield from _through(chain, _rows_of_part(job, batch), following)
        except BackendUnavailable as error:
            yield _refusal(RowError(_UNSHARED, str(error)))


def _rows_of_part(job: PlanJob, batch: pa.RecordBatch) -> Iterator[Rows]:
    task = _own_task(job)
    records = _records_of_part(job, task, batch)
    for covered in covered_rows(records, task.part.offsets, task.done):
        yield covered.rows


def _records_of_part(
    job: PlanJob, task: PartTask, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Yield the records that the driver sent, or those of the hub's files.

    `BackendUnavailable` if this host cannot read the hub.
    """
    if task.range is None:
        yield from unpack(batch["records"][0].as_buffer())
        return
    error = None if job.shared is None else job.shared.hub_error()
    if error is not None:
        raise BackendUnavailable(
            f"{socket.gethostname()} cannot read the hub {job.hub}: {error}",
            "it joined after the other executors were asked",
        )
    yield from read_range(task.range)


def transform(
    batches: Iterator[pa.RecordBatch], chain: Chain, following: NamespaceFilter
) -> Iterator[pa.RecordBatch]:
    """Yield the rows between one Spark SQL and the next, after the functions between."""
    yield from _through(chain, map(Rows, whole_records(_records(batches))), following)


def _through(
    chain: Chain, given: Iterable[Rows], following: NamespaceFilter
) -> Iterator[pa.RecordBatch]:
    """Yield rows after a chain, up to the first record that it cannot transform."""
    try:
        for rows in given:
            try:
                yield _rows(chain.apply(rows), following)
            except RowError as refused:
                before = [offset < refused.offset for offset in rows.offsets]
                yield _rows(chain.apply(rows.where(before)), following)
                raise
    except RowError as refused:
        yield _refusal(refused)


def _sent(chain: Chain, given: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    """Yield rows after a chain, packed, and the failure that ended them, if any."""
    try:
        for rows in given:
            try:
                yield _packed([chain.apply(rows).encoded])
            except RowError as refused:
                before = [offset < refused.offset for offset in rows.offsets]
                yield _packed([chain.apply(rows.where(before)).encoded])
                raise
    except Exception as error:
        yield _packed([], TaskFailure.of(error))


def _packed(
    batches: Sequence[pa.RecordBatch], failure: TaskFailure | None = None
) -> pa.RecordBatch:
    context = TaskContext.get()
    assert context is not None
    found = None if failure is None else msgspec.msgpack.encode(failure)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([context.partitionId()], pa.int32()),
            pa.array([pack(batches)], pa.binary()),
            pa.array([found], pa.binary()),
        ],
        names=["part", "rows", "failure"],
    )


def _refusal(refused: RowError) -> pa.RecordBatch:
    fields = {"offset": refused.offset, "timestamp": 0, "mode": 0, "op": 0, "value": b""}
    row = {PREFIX + name: value for name, value in fields.items()}
    row |= {PREFIX + "applies": False, PREFIX + "error": refused.reason}
    return pa.RecordBatch.from_pylist([row], schema=_ARROW)


def _own_task(job: PlanJob) -> PartTask:
    freeze_loaded_objects()
    context = TaskContext.get()
    assert context is not None
    return job.tasks[context.partitionId()]


def _attempt(
    job: PlanJob, task: PartTask, chain: Chain, batches: Callable[[], Iterable[pa.RecordBatch]]
) -> AttemptReport:
    context = TaskContext.get()
    assert context is not None
    sink = None if job.shared is None else job.shared.sink
    error = None if sink is None else sink.read_error()
    if sink is not None and error is not None:
        reason = f"{socket.gethostname()} does not share {sink.directory}: {error}"
        return AttemptReport(error=reason, fault=Fault.OUTAGE, failed_below=task.part.offsets.end)
    plan_round = job.round
    attempt = Attempt(
        writer=plan_round.name,
        stream=plan_round.stream_of(task.part.where),
        plan=plan_round.plan,
        offsets=task.part.offsets,
        epoch=plan_round.epoch,
        number=plan_round.number * ATTEMPTS_PER_ROUND
        + context.taskAttemptId() % ATTEMPTS_PER_ROUND,
        fence=plan_round.fence,
        open_hub=partial(hub_at, job.hub),
    )
    return make_attempt(plan_round.writer, chain, attempt, task.done, batches, job.stopping)


def _reported(report: AttemptReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [msgspec.msgpack.encode(report)]})


def _rows(rows: Rows, following: NamespaceFilter) -> pa.RecordBatch:
    records = rows.encoded
    applies = ~control_mask(records)
    mask = following.mask(records["key"])
    if mask is not None:
        applies &= mask
    columns = [records["offset"], records["timestamp"].view(pa.int64())]
    columns += [records[name].cast(pa.int32()) for name in ("mode", "op")]
    columns += [records[name] for name in ("key", "headers", "value")]
    columns += [pa.array(applies), pa.nulls(len(rows), pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows between two steps as records; `RowError` at a row that marks a refused record."""
    for batch in batches:
        refused = batch.num_rows
        if batch[PREFIX + "error"].null_count < batch.num_rows:
            refused = batch[PREFIX + "error"].is_valid().index(True).as_py()
        yield _as_records(batch.slice(0, refused))
        if refused < batch.num_rows:
            offset, reason = batch[PREFIX + "offset"][refused], batch[PREFIX + "error"][refused]
            if offset.as_py() == _UNSHARED:
                raise BackendUnavailable(reason.as_py())
            raise RowError(offset.as_py(), reason.as_py())


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    offset, timestamp, mode, op, key, headers, value = batch.columns[: len(SCHEMA)]
    columns = [offset, timestamp.view(SCHEMA.field("timestamp").type)]
    columns += [mode.cast(pa.uint8()), op.cast(pa.uint8())]
    for name, column in (("key", key), ("headers", headers), ("value", value)):
        columns.append(column.cast(SCHEMA.field(name).type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def records_of_rows(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Spark table as records; `RowError` at a refused record."""
    return whole_records(_records(table.to_batches()))


def whole_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, with all rows of a record in one batch.

    Spark splits batches anywhere, and a function may have made several rows of a record.
    """
    left: pa.RecordBatch | None = None
    for batch in filter(len, batches):
        rows = batch if left is None else _joined(left, batch)
        offsets = rows["offset"].to_numpy()
        first = int(np.searchsorted(offsets, offsets[-1]))
        if first:
            yield rows.slice(0, first)
        left = rows.slice(first)
    if left is not None:
        yield left


def _joined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    pairs = zip(one.columns, other.columns, strict=True)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(pair) for pair in pairs], schema=SCHEMA)
