"""The rows of one task, on their way from an executor to the driver.

An executor needs no hub: it checks rows against the limits that the driver sent, and returns them
as an Arrow stream. Up to `CARRIED_BYTES` travel inside the commit message. More are staged as a
file; an executor that does not reach the staging directory sends up to `CARRIED_BYTES_MAX`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tailrace.errors import BackendUnavailable, ConfigError
from tailrace.size import format_size
from tailrace.spark.columns import to_append
from tailrace.spark.sink.json_check import RowPlace, check_json
from tailrace.spark.sink.staging import StagingDirectory, query_folder
from tailrace.topic.record_builder import checked_columns

CARRIED_BYTES: Final = 1 << 20
"""Rows of a task that travel with its commit message, although they could be staged."""

CARRIED_BYTES_MAX: Final = 8 << 20
"""Rows of a task that travel with its commit message if they cannot be staged."""

ROUTING: Final[tuple[str, ...]] = ("topic", "partition")
"""Columns that say where a row goes; they are not stored."""


class StreamBatch(NamedTuple):
    """The query and the batch that a task belongs to, as Spark tells its tasks.

    `checkpoints` is the directory that the session has for the checkpoints of all queries.
    """

    query: str
    number: int
    checkpoints: str | None


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What a task needs to know. `folder` is where a batch write stages its files.

    `json_topic` is the topic of all rows, if their values must be JSON.
    """

    staging: StagingDirectory
    folder: str
    key_bytes_max: int
    message_bytes_max: int
    json_topic: str | None


class StagedFile(NamedTuple):
    """A file with the rows of a task, and the host that wrote it."""

    path: str
    size_bytes: int
    host: str


@dataclass(frozen=True)
class TaskRows(WriterCommitMessage):
    """The rows of a task: in `carried`, or in a file. `batch` is None unless a stream is
    written."""

    count: int
    carried: bytes
    staged: StagedFile | None
    batch: StreamBatch | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in columns, one batch after the other. Raises if the file is not whole."""
        if self.staged is None:
            if self.carried:
                with pa.ipc.open_stream(pa.BufferReader(self.carried)) as reader:
                    yield from reader
            return
        path, size_bytes, host = self.staged
        try:
            found_bytes = Path(path).stat().st_size
        except OSError as error:
            raise _lost(path, host, error.strerror or str(error)) from error
        if found_bytes != size_bytes:
            raise _lost(path, host, f"{found_bytes:,} bytes instead of {size_bytes:,}")
        with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def collect_rows(plan: TaskPlan, given: Iterator[pa.RecordBatch]) -> TaskRows:
    """Check the rows of a task and return them, staged if they are many."""
    batch = _stream_batch()
    rows = _checked_rows(plan, given)
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for each in rows:
        held.append(each)
        size_bytes += each.nbytes
        if size_bytes > CARRIED_BYTES and plan.staging.is_reachable():
            return _stage(plan, batch, held, rows)
        if size_bytes > CARRIED_BYTES_MAX:
            raise _unreachable(plan.staging, size_bytes)
    return TaskRows(sum(each.num_rows for each in held), _bytes_of(held), None, batch)


def _checked_rows(plan: TaskPlan, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all batches that have some, checked."""
    task = TaskContext.get()
    place = RowPlace(0 if task is None else task.partitionId(), 0)
    for each in given:
        if each.num_rows:
            rows = _checked(plan, each)
            if plan.json_topic is not None:
                check_json(rows, place, lambda _index: plan.json_topic)
            place = RowPlace(place.task, place.row + rows.num_rows)
            yield rows


def _checked(plan: TaskPlan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as the driver appends them: the same columns and types from every task."""
    routing = [name for name in ROUTING if name in rows.schema.names]
    limits = plan.key_bytes_max, plan.message_bytes_max
    now_ms = time.time_ns() // 1_000_000
    stored = checked_columns(to_append(rows.drop_columns(routing)), now_ms, *limits)
    stored = stored.drop_columns(["offset"])
    for name in routing:
        kind = pa.string() if name == "topic" else pa.int32()
        stored = stored.append_column(name, rows[name].cast(kind))
    return stored


def _stage(
    plan: TaskPlan,
    batch: StreamBatch | None,
    held: list[pa.RecordBatch],
    more: Iterator[pa.RecordBatch],
) -> TaskRows:
    """Write rows to a new file, which is removed again if a later row is refused."""
    folder, prefix = plan.folder, ""
    if batch is not None:
        folder, prefix = query_folder(batch.query), f"{batch.number}-"
    count = 0
    path: Path | None = None
    try:
        path = plan.staging.new_file(folder, prefix)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, held[0].schema) as writer:
            while held:
                writer.write_batch(held[0])
                count += held.pop(0).num_rows
            for each in more:
                writer.write_batch(each)
                count += each.num_rows
        staged = StagedFile(str(path), path.stat().st_size, socket.gethostname())
    except BaseException as error:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BackendUnavailable):
            raise BackendUnavailable(
                f"host {socket.gethostname()} could not stage rows in {plan.staging.path}: "
                f"{error.strerror or error}",
                "free or choose another directory with the option staging",
            ) from error
        raise
    return TaskRows(count, b"", staged, batch)


def _bytes_of(rows: list[pa.RecordBatch]) -> bytes:
    if not rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows[0].schema) as writer:
        for each in rows:
            writer.write_batch(each)
    return sink.getvalue().to_pybytes()


def _stream_batch() -> StreamBatch | None:
    task = TaskContext.get()
    if task is None:
        return None
    query = task.getLocalProperty("sql.streaming.queryId")
    number = task.getLocalProperty("streaming.sql.batchId")
    if query is None or number is None:
        return None
    checkpoints = task.getLocalProperty("spark.sql.streaming.checkpointLocation")
    return StreamBatch(query, int(number), checkpoints)


def _unreachable(staging: StagingDirectory, size_bytes: int) -> ConfigError:
    limit = format_size(CARRIED_BYTES_MAX)
    return ConfigError(
        f"a task on host {socket.gethostname()} has {size_bytes:,} bytes of rows or more, and "
        f"that host does not share {staging.path} with the driver",
        "set the option staging=DIRECTORY to a directory that the driver and all executors share "
        f"and can write, or use more tasks with at most {limit} each",
    )


def _lost(path: str, host: str, found: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"the driver cannot read {path}, where host {host} staged rows: {found}",
        "nothing was written; set the option staging=DIRECTORY to a directory that the driver and "
        "all executors share",
    )
