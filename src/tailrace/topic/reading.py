"""Reading a whole topic so that order per key holds: a partition only after all that it follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import OutOfRange
from tailrace.log.record import Record
from tailrace.log.columns import records_of
from tailrace.message import Partition
from tailrace.topic.lineage import follows
from tailrace.topic.view import View

READ_BYTES: Final = 1 << 20
"""About how much one batch has."""


class Read(NamedTuple):
    """Some records of one partition, in order."""

    partition: Partition
    records: pa.RecordBatch


class LineageReader:
    """Reads all partitions of a topic, from `starts` on or from the beginning, and remembers how far it is.

    Call `poll` again and again; it sees new records and new storage topics. It keeps nothing in the hub.
    """

    def __init__(self, view: View, starts: Mapping[Partition, int]) -> None:
        self._view = view
        self._next = dict(starts)
        self._finished: set[Partition] = set()
        self._oldest = 0

    def poll(self) -> Iterator[Read]:
        """What there is to read now, about `READ_BYTES` of each partition that may be read; never waits.

        Nothing at all means that everything up to now was read.
        """
        definition = self._view.refresh().definition
        for storage in range(self._oldest, definition.pointer + 1):
            storage_topic = definition.storage_topic(self._view.topic, storage)
            for number, bounds in enumerate(self._view.backend.log.bounds_of(storage_topic)):
                partition = Partition(self._view.topic, storage, number)
                if partition in self._finished or not self._may_start(partition):
                    continue
                records = self._read(partition, bounds)
                if records is not None:
                    yield Read(partition, records)
                if bounds.sealed and self._next.get(partition, 0) >= bounds.end:
                    self._finished.add(partition)
            if storage == self._oldest and self._all_finished(storage_topic.partitions):
                self._oldest += 1
'''
