"""An opened `topic` reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tailrace.backend.contract import Bounds
from tailrace.errors import Error, HubClosed, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.readers.topic.rows import messages_for_all, partition_rows, pushed_messages
from tailrace.readers.topic.splits import FROM_ITS_START, first_splits, next_splits
from tailrace.source.reader import Batch, Closeable, Push, Split, Until
from tailrace.topic.composite import Definition
from tailrace.topic.open_streams import held_streams
from tailrace.topic.reading import READ_BYTES


class TopicReaderSession(Closeable):
    """A `ReaderSession` of a topic. It closes the hub when it is closed.

    A position is the next offset of the partition. With `into`, messages are pushed to that topic;
    without, they are rows of `namespace`. Until now means up to the ends of this moment: partitions
    that are created later are not read.
    """

    def __init__(
        self, hub: Hub, topic: Topic[Any], namespace: str, into: str | None, until: Until
    ) -> None:
        self._hub = hub
        self._view = topic.view
        self._log = topic.view.backend.log
        self._namespace = namespace
        self._into = into
        self._limits: dict[Partition, Bounds] | None = None
        if until is Until.NOW:
            self._limits = {
                Partition(topic.name, *stream): bounds for stream, bounds in self._held().items()
            }

    def splits(self) -> list[Split]:
        """Return the partitions of the oldest storage topic."""
        with self._deletion_named():
            definition = self._view.refresh().definition
            return first_splits(self._view.topic, definition, self._held(), self._namespace)

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        """Yield the batches of a partition; see `ReaderSession.read`."""
        partition = Partition.parse(split.id)
        limit = None if self._limits is None else self._limits.get(partition)
        if self._limits is not None and limit is None and not self._is_deleted(partition):
            return  # It was created after this session was opened.
        at: int = split.data["start"] if position is None else position
        while True:
            with self._deletion_named():
                batch, at = self._next(split, partition, at, limit)
            if batch is None and limit is not None and at >= limit.end:
                return
            yield batch
            if batch is not None and batch.finished:
                return

    def close(self) -> None:
        """Close the hub."""
        self._hub.close()

    def _next(
        self, split: Split, partition: Partition, at: int, limit: Bounds | None
    ) -> tuple[Batch | None, int]:
        """Return the batch at an offset, None if there is nothing now, and where to continue."""
        start, end, sealed = self._bounds(split, partition, at)
        if not start <= at <= end:
            self._definition(split)
            raise self._outside(partition, at, start, end)
        if limit is not None:
            _, end, sealed = limit
        batch = None
        while batch is None and at < end:
            chunk = self._log.read(partition, at, READ_BYTES, end)
            if chunk.next_offset == at:
                return None, at
            at = chunk.next_offset
            if chunk.records.num_rows:  # else a gap
                batch = self._batch(partition, messages_for_all(chunk.records), at, end)
        is_read = sealed and at >= end
        if batch is None and not is_read:
            return None, at
        # Read after the bounds and the records: a sealed partition has its successors in it, and
        # the records are of this topic, not of a later one with its name.
        definition = self._definition(split)
        if is_read:
            children = next_splits(self._log, partition, definition, self._namespace)
            if children:
                return _finished(batch or Batch(None, at), children), at
        return batch, at

    def _bounds(self, split: Split, partition: Partition, at: int) -> Bounds:
        """Return the bounds of a partition. That of a deleted storage topic is sealed and empty if
        it was read to its end, else an `Error`."""
        try:
            return self._log.bounds(partition)
        except UnknownTopic:
            deleted = self._definition(split).deleted.get(partition.storage)
            if deleted is None:
                raise
            end = deleted[partition.number].end
            if at < end:
                raise self._outside(partition, at, end, end) from None
            return Bounds(end, end, sealed=True)

    def _batch(
        self, partition: Partition, records: pa.RecordBatch, position: int, end: int
    ) -> Batch:
        lag = self._lag(partition, position, end)
        if not records.num_rows:
            return Batch(None, position, lag=lag)
        if self._into is not None:
            pushes = (Push(self._into, pushed_messages(records)),)
            return Batch(None, position, pushes=pushes, lag=lag)
        rows, identities, bad = partition_rows(records, partition, self._namespace)
        return Batch(rows, position, bad, identities, lag=lag)

    def _lag(self, partition: Partition, position: int, end: int) -> int | None:
        """Count the records between two offsets; None if the storage topic was deleted."""
        try:
            return self._log.amount(partition, position, end).records
        except UnknownTopic:
            return None

    def _is_deleted(self, partition: Partition) -> bool:
        """True if the storage topic of a partition was deleted."""
        with self._deletion_named():
            return partition.storage in self._view.refresh().definition.deleted

    def _held(self) -> dict[tuple[int, int], Bounds]:
        definition = self._view.refresh().definition
        return held_streams(self._log, self._view.topic, definition)

    def _definition(self, split: Split) -> Definition:
        """Return the definition of the topic as it is now; an `Error` if it is another topic."""
        definition = self._view.refresh().definition
        if definition.identity != split.data["identity"]:
            raise Error(
                f"{self._name} was deleted and created again; it is not the topic that was read",
                FROM_ITS_START,
            )
        return definition

    def _outside(self, partition: Partition, at: int, start: int, end: int) -> Error:
        """Return the error for an offset that a partition does not have, or no longer."""
        where = f"{partition} of the hub {self._view.backend.name}"
        if at < start:
            return Error(
                f"{where} begins at offset {start}: the records from offset {at} on were removed"
                " before they were read",
                FROM_ITS_START,
            )
        return Error(
            f"{where} ends at offset {end}, and was read up to offset {at} before: the hub was"
            " restored from an older backup",
            FROM_ITS_START,
        )

    @property
    def _name(self) -> str:
        return f"topic {self._view.topic!r} of the hub {self._view.backend.name}"

    @contextmanager
    def _deletion_named(self) -> Iterator[None]:
        """Name the topic and the hub if one of them disappears.

        Not as `UnknownTopic` or `HubReplaced`, which are those of the hub that runs the source.
        """
        try:
            yield
        except UnknownTopic as error:
            raise Error(f"{self._name} was deleted while it was read") from error
        except HubClosed as error:
            raise Error(f"{self._name} cannot be read: {error}") from error


def _finished(batch: Batch, children: tuple[Split, ...]) -> Batch:
    """Return the last batch of a partition, which reports those that follow it."""
    return Batch(
        batch.records,
        batch.position,
        batch.bad,
        batch.identities,
        children,
        finished=True,
        pushes=batch.pushes,
    )
