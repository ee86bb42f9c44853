"""The rows of all tasks of a write, appended in one transaction.

The rows are read task by task, so a staged write is never in memory as a whole: encoded records
above `MEMORY_BYTES` are moved to temporary files and mapped. A write is one commit, so other
writers of its partitions wait while it is written: `COMMIT_BYTES_MAX` bounds that.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.backend.contract import Transaction
from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Encoded
from tailrace.message import Partition
from tailrace.payload import is_json
from tailrace.spark.sink.json_check import RowPlace, check_json
from tailrace.spark.sink.task_rows import ROUTING, TaskRows
from tailrace.topic.routed_batch import Part, RoutedBatch
from tailrace.topic.view import View

APPEND_BYTES: Final = 8 << 20
"""The approximate size of the batches that are encoded at once."""

MEMORY_BYTES: Final = 64 << 20
"""The encoded records that are kept in memory; a temporary file has as many."""

COMMIT_BYTES_MAX: Final = 4 << 30
"""The largest size of one write, encoded."""


class WriteTransaction:
    """Builds the transaction of a write: the rows of all tasks, in task order.

    `views` has the topics that the rows go to, once `build` was called. `build` may be called
    again, after a topic was switched to another storage topic. If rows name their topics, those for
    topics of JSON are checked here, unless `any_type`; otherwise the tasks have done it.
    """

    def __init__(
        self,
        hub: Hub,
        topic: str | None,
        tasks: Sequence[TaskRows],
        temporary: str,
        *,
        any_type: bool,
    ) -> None:
        self.views: dict[str, View] = {}
        self._hub = hub
        self._topic = topic
        self._checks = topic is None and not any_type
        self._tasks = tasks
        self._temporary = temporary
        self._topics: dict[str, Topic[Any]] = {}

    def build(self) -> Transaction:
        """Read, encode and route all rows."""
        spool = _Spool(self._temporary)
        for name, rows in _gathered(self._batches()):
            topic = self._found(name)
            for part in _routed(topic, rows):
                spool.add(part)
        since = dict(pair for view in self.views.values() for pair in view.target.since.items())
        return Transaction(spool.parts(), since=since)

    def _batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for number, task in enumerate(self._tasks):
            row = 0
            for batch in task.batches():
                if self._checks:
                    self._check(batch, RowPlace(number, row))
                row += batch.num_rows
                yield from _by_topic(batch, self._topic)

    def _check(self, batch: pa.RecordBatch, place: RowPlace) -> None:
        """Check the rows for topics of JSON; the topic of a row may be missing here."""
        topics = batch["topic"]
        names = cast("list[str]", pc.unique(topics.drop_null()).to_pylist())
        of_json = {each: each for each in names if is_json(self._found(each).payload.content_type)}
        if of_json:
            check_json(batch, place, lambda index: of_json.get(topics[index].as_py()))

    def _found(self, name: str) -> Topic[Any]:
        if name not in self._topics:
            topic = self._topics[name] = self._hub.topic(name)
            self.views[name] = topic.view
        return self._topics[name]


def _by_topic(batch: pa.RecordBatch, only: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, without the column topic.

    The option wins, as in Spark's Kafka sink.
    """
    if "topic" not in batch.schema.names:
        assert only is not None
        yield only, batch
        return
    rows = batch.drop_columns(["topic"])
    if only is not None:
        yield only, rows
        return
    topics = batch["topic"]
    if topics.null_count:
        raise InvalidValue("column 'topic'", None, "the name of a topic in every row")
    for name in pc.unique(topics):
        yield name.as_py(), rows.filter(pc.equal(topics, name))


def _gathered(
    batches: Iterator[tuple[str, pa.RecordBatch]],
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the same rows in batches of about `APPEND_BYTES`; the rows of a topic keep their
    order."""
    held: dict[str, list[pa.RecordBatch]] = {}
    held_bytes = 0
    for name, batch in batches:
        for piece in _pieces(batch):
            held.setdefault(name, []).append(piece)
            held_bytes += piece.nbytes
            if held_bytes >= APPEND_BYTES:
                yield from _joined(held)
                held, held_bytes = {}, 0
    yield from _joined(held)


def _joined(held: dict[str, list[pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for name, batches in held.items():
        [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
        yield name, whole


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, rows.num_rows * APPEND_BYTES // max(rows.nbytes, 1))
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)


def _routed(topic: Topic[Any], rows: pa.RecordBatch) -> tuple[Part, ...]:
    numbers = rows["partition"] if "partition" in rows.schema.names else None
    routing = [name for name in ROUTING if name in rows.schema.names]
    batch: RoutedBatch = topic.builder.columns(rows.drop_columns(routing), numbers)
    return batch.route(topic.view.target)


class _Spool:
    """Encoded records of a transaction: some in memory, the others in mapped temporary files."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._mapped: list[Part] = []
        self._held: list[Part] = []
        self._held_bytes = 0
        self._size_bytes = 0

    def add(self, part: Part) -> None:
        """Add records; `MessageTooLarge` beyond `COMMIT_BYTES_MAX`."""
        size_bytes = len(part[1].data)
        self._size_bytes += size_bytes
        if self._size_bytes > COMMIT_BYTES_MAX:
            raise MessageTooLarge(
                "a write of Spark to topics",
                self._size_bytes,
                COMMIT_BYTES_MAX,
                "for one commit; limit the batches of a stream with maxBytesPerTrigger or "
                "maxOffsetsPerTrigger, or write a batch in parts",
                at_least=True,
            )
        self._held.append(part)
        self._held_bytes += size_bytes
        if self._held_bytes > MEMORY_BYTES:
            self._map()

    def parts(self) -> tuple[Part, ...]:
        """Return all records, in the order of `add`."""
        return (*self._mapped, *self._held)

    def _map(self) -> None:
        """Move the records in memory to a file that has no name, so nobody has to remove it."""
        with tempfile.TemporaryFile(dir=self._directory) as file:
            for _, records in self._held:
                file.write(records.data)
            file.flush()
            view = memoryview(mmap.mmap(file.fileno(), os.fstat(file.fileno()).st_size))
        start = 0
        for partition, records in self._held:
            end = start + len(records.data)
            self._mapped.append(_at(partition, records, view[start:end]))
            start = end
        self._held, self._held_bytes = [], 0


def _at(partition: Partition, records: Encoded, data: memoryview) -> Part:
    return partition, replace(records, data=data)
