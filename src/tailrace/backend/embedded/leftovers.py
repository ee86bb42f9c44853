"""Leftovers: segment files that no row names, which an interrupted compaction left.

They are searched when a hub is opened, and before a partition is compacted. Another process may be
writing such files at this moment: a new segment, under the partition's lock; a new generation,
under the hold of its compaction. So both are held while files are removed. A process killed inside
COMMIT may also have left frames in the WAL that the next recovery takes for committed: a small
commit replaces such frames before any file that they name is removed.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from tailrace.backend.contract import Hold
from tailrace.backend.embedded.commit_point import CommitPoint, Parts, touch
from tailrace.backend.embedded.committer import Committer
from tailrace.backend.embedded.snapshots import select
from tailrace.errors import Error, UnknownTopic
from tailrace.log.segment import parse_segment_name
from tailrace.message import Partition

OPENING_WAIT_S: Final = 0.1
"""How long opening a hub waits for a partition that has leftovers. After that, they stay."""


class NumberedPartition(NamedTuple):
    """A partition with its number in `hub.db`."""

    partition: Partition
    number: int


class _Named(NamedTuple):
    """The segments of a partition that rows name, as base and generation, and its next offset."""

    segments: set[tuple[int, int]]
    next_offset: int

    def leftover_files(self, directory: Path) -> list[Path]:
        """Return the segment files that no row names and none will name.

        A file that begins at the next offset may belong to a segment that is being created.
        """
        found = []
        with suppress(FileNotFoundError):
            for file in os.listdir(directory):
                name = parse_segment_name(file)
                if name is not None and name not in self.segments:
                    base, generation = name
                    if generation > 0 or base < self.next_offset:
                        found.append(directory / file)
        return found


class Leftovers:
    """Removes leftovers of one open hub."""

    def __init__(
        self,
        opened: Callable[[], Parts],
        commit_point: CommitPoint,
        committer: Committer,
        hold: Callable[[str, str], Hold],
    ) -> None:
        self._opened = opened
        self._commit_point = commit_point
        self._committer = committer
        self._hold = hold

    def numbered(self, partition: Partition) -> NumberedPartition:
        """Return the partition with its number; `UnknownTopic` if there is none."""
        parts = self._opened()
        rows = parts.database.rows(
            "SELECT id FROM partitions WHERE topic = ? AND storage = ? AND number = ?", partition
        )
        if not rows:
            raise UnknownTopic(str(partition), str(parts.layout.directory))
        return NumberedPartition(partition, rows[0][0])

    def hold_compaction(self, numbered: NumberedPartition) -> Hold:
        """Hold the right to write and remove generations of a partition; `Busy` if another process
        has it."""
        owner = f"process {os.getpid()}, for {numbered.partition}"
        return self._hold(f"compaction/{numbered.number}", owner)

    def remove_all(self) -> None:
        """Remove the leftovers of all partitions that are free now; others wait for the next
        opening."""
        layout = self._opened().layout
        for numbered, named in self._all_named():
            if named.leftover_files(layout.partition(*numbered)):
                with suppress(Error, OSError, apsw.Error), self.hold_compaction(numbered):
                    self.remove(numbered, time.monotonic() + OPENING_WAIT_S)

    def remove(self, numbered: NumberedPartition, deadline: float) -> None:
        """Remove the leftovers of a partition whose compaction the caller holds."""
        with self._committer.leading:
            parts = self._opened()
            directory = parts.layout.partition(*numbered)
            parts.locks.lock_partition(numbered.number, deadline, f"partition {numbered.partition}")
            try:
                if not self._named(numbered).leftover_files(directory):
                    return
                self._commit_point.change(touch, deadline)
                parts.reach("leftovers-found")
                for file in self._named(numbered).leftover_files(directory):
                    file.unlink(missing_ok=True)
            finally:
                parts.locks.unlock_partition(numbered.number)

    def _named(self, numbered: NumberedPartition) -> _Named:
        database = self._opened().database
        with database.snapshot() as connection:
            offsets = select(
                connection, "SELECT next_offset FROM partitions WHERE id = ?", (numbered.number,)
            )
            segments = select(
                connection,
                "SELECT base, generation FROM segments WHERE partition = ?",
                (numbered.number,),
            )
        # Without a row, the process that deleted the topic removes the whole directory.
        return _Named(set(segments), offsets[0][0] if offsets else 0)

    def _all_named(self) -> Iterator[tuple[NumberedPartition, _Named]]:
        with self._opened().database.snapshot() as connection:
            partitions = select(
                connection, "SELECT id, topic, storage, number, next_offset FROM partitions"
            )
            rows = select(connection, "SELECT partition, base, generation FROM segments")
        segments: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        for number, base, generation in rows:
            segments[number].add((base, generation))
        for number, topic, storage, index, next_offset in partitions:
            if number in segments:
                partition = Partition(topic, storage, index)
                yield NumberedPartition(partition, number), _Named(segments[number], next_offset)
