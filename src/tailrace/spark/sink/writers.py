"""The writers that Spark calls: `write` in every task, `commit` and `abort` on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tailrace.errors import ConfigError
from tailrace.payload import is_json
from tailrace.spark.columns import check_write
from tailrace.spark.hubs import hub_at
from tailrace.spark.options import WriteOptions, write_options
from tailrace.spark.sink.checkpoint import batch_digest
from tailrace.spark.sink.commit import WriteTransaction
from tailrace.spark.sink.staging import StagingDirectory, new_write_folder, staging_in_hub
from tailrace.spark.sink.stored_writes import WriteId, store_once
from tailrace.spark.sink.task_rows import StreamBatch, TaskPlan, TaskRows, collect_rows
from tailrace.spark.tasks import freeze_loaded_objects
from tailrace.spark.tracebacks import hide_traceback
from tailrace.topic.view import commit_following


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of all tasks in one commit: all of them once, or none.

    Spark may run a task several times; only the result of one attempt is committed. With the
    options txnAppId and txnVersion, a write with a version that is stored already is skipped.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten", "valid: mode('append')")
        self._options = _checked(options, schema)
        self._plan = _plan(self._options)

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Check and stage the rows of a task. Does not open the hub."""
        return _collect(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows of all tasks, in task order."""
        with hide_traceback():
            numbered = self._options.numbered
            write = None
            if numbered is not None:
                write = WriteId(f"app/{numbered.application}", numbered.version, None)
            _commit(self._options, self._plan, _tasks(messages), write)
            self._plan.staging.remove_write(self._plan.folder)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files."""
        self._plan.staging.remove_write(self._plan.folder)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch in one commit, once, if its checkpoint can be read.

    Spark repeats a batch after a crash; a batch that the hub has is skipped. In complete mode each
    batch has all rows of the result, which are appended, as in Spark's Kafka sink.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = _checked(options, schema)
        if self._options.numbered is not None:
            raise ConfigError(
                "the options 'txnAppId' and 'txnVersion' are not valid for a stream",
                "a stream is identified by its checkpoint",
            )
        self._plan = _plan(self._options)

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Check and stage the rows of a task. Does not open the hub."""
        return _collect(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Append the rows of all tasks, in task order, unless this batch is stored already."""
        with hide_traceback():
            tasks = _tasks(messages)
            batch = _batch_of(tasks)
            _commit(self._options, self._plan, tasks, _identity(self._options, batch, batch_id))
            self._clean_up(batch, batch_id)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Remove the staged files. Those of failed tasks whose query is unknown are removed by the
        next commit of the query."""
        self._clean_up(_batch_of(_tasks(messages)), batch_id)

    def _clean_up(self, batch: StreamBatch | None, number: int) -> None:
        if batch is not None:
            self._plan.staging.remove_batches(batch.query, number)


def _checked(given: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Return the options. Raises, before any task runs, if no task could write the rows."""
    options = write_options(given)
    check_write(schema)
    if options.topic is not None:
        hub_at(options.hub).topic(options.topic)
    elif "topic" not in schema.names:
        raise ConfigError(
            "no topic to write to is given",
            "valid: option topic=orders, or a column 'topic' that names one for each row",
        )
    return options


def _plan(options: WriteOptions) -> TaskPlan:
    hub = hub_at(options.hub)
    settings, json_topic = hub.settings, None
    if options.topic is not None and not options.any_type:
        topic = hub.topic(options.topic)
        json_topic = topic.name if is_json(topic.payload.content_type) else None
    return TaskPlan(
        StagingDirectory.prepare(options.staging or staging_in_hub(options.hub)),
        new_write_folder(),
        settings.key_bytes_max,
        settings.message_bytes_max,
        json_topic,
    )


def _collect(plan: TaskPlan, rows: Iterator[pa.RecordBatch]) -> TaskRows:
    freeze_loaded_objects()
    with hide_traceback():
        return collect_rows(plan, rows)


def _tasks(messages: Sequence[WriterCommitMessage | None]) -> list[TaskRows]:
    """Return the results of the tasks that succeeded."""
    return [message for message in messages if isinstance(message, TaskRows)]


def _batch_of(tasks: Sequence[TaskRows]) -> StreamBatch | None:
    return next((task.batch for task in tasks if task.batch is not None), None)


def _identity(options: WriteOptions, batch: StreamBatch | None, number: int) -> WriteId | None:
    """Return the identity of a batch; None if it has none, so that it is stored at least once."""
    if batch is None:
        return None
    location = options.checkpoint
    if location is None and batch.checkpoints is not None and options.query_name is not None:
        location = f"{batch.checkpoints.rstrip('/')}/{options.query_name}"
    if location is None:  # Spark made a checkpoint of a random name, which no restart finds.
        return None
    contents = batch_digest(location, batch.query, number)
    return None if contents is None else WriteId(f"query/{batch.query}", number, contents)


def _commit(
    options: WriteOptions, plan: TaskPlan, tasks: Sequence[TaskRows], write: WriteId | None
) -> None:
    if not any(task.count for task in tasks):
        return
    hub = hub_at(options.hub)
    transaction = WriteTransaction(
        hub, options.topic, tasks, plan.staging.path, any_type=options.any_type
    )
    if write is None:
        commit_following(hub.backend, transaction.views, transaction.build)
    else:
        store_once(hub.backend, transaction.views, transaction.build, write)
