"""What runs on Spark's executors: attempts at parts of a plan, and the functions before Spark SQL.

Nothing here has the hub open unless a writer asks for it: the records are read from the files that
the plan names, and go straight from there through the chain into the sink.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tailrace.log.schema import SCHEMA
from tailrace.pipeline.chain import Chain, control_mask
from tailrace.pipeline.deliver import Report, covered, make_attempt
from tailrace.pipeline.engine import ATTEMPTS_A_ROUND, Work
from tailrace.pipeline.namespace import NamespaceFilter
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import Part
from tailrace.pipeline.rows import RowError, Rows
from tailrace.pipeline.writer import Attempt
from tailrace.spark.hubs import hub_at
from tailrace.spark.ranges import Range, read_range
from tailrace.spark.tasks import settle

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
"""Records between two steps in Spark; `applies` says whether the next Spark SQL is for them. A row
with an `error` stands for a record that a function refused, and ends what comes."""

PREFIX = "tailrace_"
"""Begins the names of these columns, so that fields of documents may have any name."""

ROWS = ", ".join(f"{PREFIX}{name} {kind}" for name, (kind, _) in COLUMNS.items())
REPORTS = "report BINARY"

_ARROW = pa.schema([pa.field(PREFIX + name, kind) for name, (_, kind) in COLUMNS.items()])


@dataclass(frozen=True, slots=True)
class Task:
    """A part for one task: where its bytes are, and what is done of it."""

    part: Part
    done: Sequence[Offsets]
    range: Range


@dataclass(frozen=True, slots=True)
class Job:
    """All tasks of one plan. `stop_file` appears when they are to end early."""

    work: Work
    tasks: tuple[Task, ...]
    hub: str
    stop_file: str

    def stopping(self) -> bool:
        """Whether the driver wants tasks to end."""
        return os.path.exists(self.stop_file)


def write(batches: Iterator[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """Read, transform and write the part of this task; its report."""
    for _ in batches:
        task = _own_task(job)
        yield _reported(_attempt(job, task, job.work.chain, partial(read_range, task.range)))


def write_rows(
    batches: Iterator[pa.RecordBatch], job: Job, chain: Chain
) -> Iterator[pa.RecordBatch]:
    """Write rows that come from Spark SQL, through what is left of the chain; the report."""
    task = _own_task(job)
    yield _reported(_attempt(job, task, chain, lambda: whole_records(_records(batches))))


def read(
    batches: Iterator[pa.RecordBatch], job: Job, chain: Chain, following: NamespaceFilter
) -> Iterator[pa.RecordBatch]:
    """The rows of this task's part as they come out of a chain, for Spark SQL to go on with."""
    for _ in batches:
        task = _own_task(job)
        records = covered(read_range(task.range), task.part.offsets, task.done)
        yield from _through(chain, (rows for rows, _ in records), following)


def transform(
    batches: Iterator[pa.RecordBatch], chain: Chain, following: NamespaceFilter
) -> Iterator[pa.RecordBatch]:
    """Rows from one Spark SQL to the next, through the functions between."""
    yield from _through(chain, map(Rows, whole_records(_records(batches))), following)


def _through(
    chain: Chain, given: Iterable[Rows], following: NamespaceFilter
) -> Iterator[pa.RecordBatch]:
    """Rows as they come out of a chain, up to the first that it cannot handle, which is named."""
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


def _refusal(refused: RowError) -> pa.RecordBatch:
    fields = {"offset": refused.offset, "timestamp": 0, "mode": 0, "op": 0, "value": b""}
    row = {PREFIX + name: value for name, value in fields.items()}
    row |= {PREFIX + "applies": False, PREFIX + "error": refused.reason}
    return pa.RecordBatch.from_pylist([row], schema=_ARROW)


def _own_task(job: Job) -> Task:
    settle()
    context = TaskContext.get()
    assert context is not None
    return job.tasks[context.partitionId()]


def _attempt(
    job: Job, task: Task, chain: Chain, batches: Callable[[], Iterable[pa.RecordBatch]]
) -> Report:
    context = TaskContext.get()
    assert context is not None
    work = job.work
    attempt = Attempt(
        writer=work.name,
        stream=work.stream_of(task.part.where),
        plan=work.plan,
        offsets=task.part.offsets,
        epoch=work.epoch,
        number=work.round * ATTEMPTS_A_ROUND + context.taskAttemptId() % ATTEMPTS_A_ROUND,
        fence=work.fence,
        open_hub=partial(hub_at, job.hub),
    )
    return make_attempt(work.writer, chain, attempt, task.done, batches, job.stopping)


def _reported(report: Report) -> pa.RecordBatch:
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
    """Rows between two steps as records; `RowError` at one that stands for a refused record."""
    for batch in batches:
        refused = batch.num_rows
        if batch[PREFIX + "error"].null_count < batch.num_rows:
            refused = batch[PREFIX + "error"].is_valid().index(True).as_py()
        yield _as_records(batch.slice(0, refused))
        if refused < batch.num_rows:
            offset, reason = batch[PREFIX + "offset"][refused], batch[PREFIX + "error"][refused]
            raise RowError(offset.as_py(), reason.as_py())


def _as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    offset, timestamp, mode, op, key, headers, value = batch.columns[: len(SCHEMA)]
    columns = [offset, timestamp.view(SCHEMA.field("timestamp").type)]
    columns += [mode.cast(pa.uint8()), op.cast(pa.uint8())]
    for name, column in (("key", key), ("headers", headers), ("value", value)):
        columns.append(column.cast(SCHEMA.field(name).type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def records_of_rows(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows as Spark gives them back to the driver, as records; `RowError` at one that was
    refused."""
    return whole_records(_records(table.to_batches()))


def whole_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, none of them in another batch than the others of its record.

    Spark cuts batches where it likes, and a record may have become many rows.
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
