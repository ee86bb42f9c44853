"""Files of segments that no row names: what an interrupted compaction left.

They are looked for when a hub is opened, and before a partition is compacted. Another process may
be writing such files at this moment: a new segment, under the partition's lock; a new generation,
under the hold of its compaction. So both are held while files are removed. And a process killed
inside COMMIT may have left frames in the WAL that the next recovery takes for committed: a small
commit takes the place of such frames before anything that they name is removed.
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
from tailrace.backend.embedded.committer import Committer
from tailrace.backend.embedded.database import select
from tailrace.backend.embedded.publisher import Parts, Publisher, touch
from tailrace.errors import Error, UnknownTopic
from tailrace.log.segment import parse_segment_name
from tailrace.message import Partition

OPENING_WAIT_S: Final = 0.1
"""How long the opening of a hub waits for a partition that has strays. It leaves them otherwise."""


class Place(NamedTuple):
    """A partition with its number in `hub.db`."""

    partition: Partition
    number: int


class _Named(NamedTuple):
    """The segments of a partition that rows name, as base and generation, and its next offset."""

    segments: set[tuple[int, int]]
    next_offset: int

    def strays(self, directory: Path) -> list[Path]:
        """The files of segments that no row names and none will.

        One that begins at the next offset may be of a segment that is just being begun.
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


class Strays:
    """Removes strays of one opened hub."""

    def __init__(
        self,
        opened: Callable[[], Parts],
        publisher: Publisher,
        committer: Committer,
        hold: Callable[[str, str], Hold],
    ) -> None:
        self._opened = opened
        self._publisher = publisher
        self._committer = committer
        self._hold = hold

    def place(self, partition: Partition) -> Place:
        """The partition with its number; `UnknownTopic` where there is none."""
        parts = self._opened()
        rows = parts.database.rows(
            "SELECT id FROM partitions WHERE topic = ? AND storage = ? AND number = ?", partition
        )
        if not rows:
            raise UnknownTopic(str(partition), str(parts.layout.directory))
        return Place(partition, rows[0][0])

    def hold_compaction(self, place: Place) -> Hold:
        """Be the one who writes and removes generations of a partition; `Busy` if another is."""
        owner = f"process {os.getpid()}, for {place.partition}"
        return self._hold(f"compaction/{place.number}", owner)

    def remove_all(self) -> None:
        """Remove all that can be had at once. What cannot is left for the next opening."""
        layout = self._opened().layout
        for place, named in self._all_named():
            if named.strays(layout.partition(*place)):
                with suppress(Error, OSError, apsw.Error), self.hold_compaction(place):
                    self.remove(place, time.monotonic() + OPENING_WAIT_S)

    def remove(self, place: Place, deadline: float) -> None:
        """Remove the strays of a partition whose compaction the caller holds."""
        with self._committer.leading:
            parts = self._opened()
            directory = parts.layout.partition(*place)
            parts.locks.lock_partition(place.number, deadline, f"partition {place.partition}")
            try:
                if not self._named(place).strays(directory):
                    return
                self._publisher.change(touch, deadline)
                parts.reach("strays-found")
                for file in self._named(place).strays(directory):
                    file.unlink(missing_ok=True)
            finally:
                parts.locks.unlock_partition(place.number)

    def _named(self, place: Place) -> _Named:
        database = self._opened().database
        with database.look() as connection:
            offsets = select(
                connection, "SELECT next_offset FROM partitions WHERE id = ?", (place.number,)
            )
            segments = select(
                connection,
                "SELECT base, generation FROM segments WHERE partition = ?",
                (place.number,),
            )
        # Without a row the whole directory is removed, by whoever deleted the topic.
        return _Named(set(segments), offsets[0][0] if offsets else 0)

    def _all_named(self) -> Iterator[tuple[Place, _Named]]:
        with self._opened().database.look() as connection:
            partitions = select(
                connection, "SELECT id, topic, storage, number, next_offset FROM partitions"
            )
            rows = select(connection, "SELECT partition, base, generation FROM segments")
        segments: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        for number, base, generation in rows:
            segments[number].add((base, generation))
        for number, topic, storage, place, next_offset in partitions:
            if number in segments:
                partition = Partition(topic, storage, place)
                yield Place(partition, number), _Named(segments[number], next_offset)
