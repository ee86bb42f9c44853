"""Writing a group of work to the hub: bytes into segments, then one commit of `hub.db`.

In this order: take the locks of the partitions; read their tails; write the bytes at the tails;
sync them; take the commit lock; check fences and seals and write the rows; COMMIT; wake followers.
Bytes that no committed row names do not exist. So there is nothing to undo and nothing to recover,
wherever the process dies.

*Orphan frames.* A process killed inside COMMIT may leave frames in the WAL that the next recovery
takes for committed. A log file longer than its committed tail shows that this may be so. Before
anything is written over such bytes, a small commit of this process replaces such frames, and the
tails are read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import apsw

from tailrace.backend.embedded.commit_point import CommitPoint, Parts, touch
from tailrace.backend.embedded.committer import Work
from tailrace.backend.embedded.folding import FOLD_ABOVE, fold
from tailrace.backend.embedded.placement import (
    Placement,
    Tail,
    commit_rows,
    place,
    read_tail,
    stamp,
)
from tailrace.backend.embedded.snapshots import select
from tailrace.backend.forking import NO_FORK
from tailrace.errors import (
    BackendUnavailable,
    DiskFull,
    Error,
    HubReplaced,
    Sealed,
    UnknownTopic,
)
from tailrace.log.segment import Segment
from tailrace.message import Partition, Range

REST_OF_GROUP_S = 1.0
"""How long the rest of a group waits for each lock after the lock of one partition timed out."""

_HUB_DEPTH = 3
"""A partition's directory is `topics/ORDERS/1.7-42` in the hub's."""


class GroupWriter:
    """Writes groups of work. Used by one thread at a time, which `Committer` ensures."""

    def __init__(self, parts: Parts, commit_point: CommitPoint) -> None:
        self._parts = parts
        self._commit_point = commit_point
        self._numbers: dict[Partition, int] = {}

    def execute(self, group: list[Work], deadline: float) -> Iterable[Work]:
        """Execute a group of work and set the outcome of each piece.

        Returns the pieces to execute again, in order.
        """
        self._commit_point.check_not_stopped()
        parts = self._parts
        parts.identity.check()
        locked: list[int] = []
        again: list[Work] = []
        try:
            with NO_FORK:
                numbers = self._admitted(group)
            for partition, number in sorted(numbers.items()):
                try:
                    parts.locks.lock_partition(number, deadline, f"partition {partition}")
                    locked.append(number)
                except BackendUnavailable as error:
                    _refuse(group, partition, error)
                    deadline = time.monotonic() + REST_OF_GROUP_S
            parts.reach("locked")
            placed = self._placed(group, numbers, again, deadline)
            self._write(placed)
            self._publish(group, placed, again, deadline)
            self._fold(placed, deadline)
            return again
        except Error:  # Some errors of Tailrace are OSErrors too.
            raise
        except (OSError, apsw.Error) as error:
            raise self._commit_point.unavailable(error) from error
        finally:
            for number in locked:
                parts.locks.unlock_partition(number)

    def _admitted(self, group: Sequence[Work]) -> dict[Partition, int]:
        """Return the numbers of the partitions to be written. Work that would be refused drops out
        here."""
        numbers: dict[Partition, int] = {}
        writer = self._parts.database.writer
        room = False
        for work in group:
            if not work.appends:
                continue
            try:
                work.check(writer)
                if not room:
                    self._keep_reserve()
                    room = True
                wanted = {partition: self._number(partition) for partition, _ in work.appends}
            except Error as error:
                work.finish(error)
            else:
                numbers |= wanted
        return numbers

    def _keep_reserve(self) -> None:
        if self._parts.identity.has_reserve:
            return
        try:
            self._parts.layout.keep_reserve()
        except DiskFull:
            # Deleted segments use disk space as long as this process has them open.
            self._parts.segments.clear()
            self._parts.layout.keep_reserve()

    def _number(self, partition: Partition) -> int:
        number = self._numbers.get(partition)
        if number is None:
            rows = select(
                self._parts.database.writer,
                "SELECT id FROM partitions WHERE topic = ? AND storage = ? AND number = ?",
                partition,
            )
            if not rows:
                raise UnknownTopic(str(partition), str(self._parts.layout.directory))
            number = self._numbers[partition] = int(rows[0][0])
        return number

    def _placed(
        self,
        group: Sequence[Work],
        numbers: dict[Partition, int],
        again: list[Work],
        deadline: float,
    ) -> dict[Work, list[Placement]]:
        placed = self._place(group, numbers, again)
        if self._find_orphans(placed):
            self._commit_point.change(touch, deadline)
            again.clear()
            placed = self._place(group, numbers, again)
            self._find_orphans(placed)
        self._parts.reach("placed")
        return placed

    def _place(
        self, group: Sequence[Work], numbers: dict[Partition, int], again: list[Work]
    ) -> dict[Work, list[Placement]]:
        parts = self._parts
        now_ms = parts.clock.now_ms()
        with NO_FORK:
            tails = {
                partition: read_tail(parts.database.writer, number)
                for partition, number in numbers.items()
            }
        placed: dict[Work, list[Placement]] = {}
        for work in group:
            if work.finished or not work.appends:
                continue
            try:
                for partition, _ in work.appends:
                    self._check_tail(work, partition, tails[partition])
            except _Moved:
                again.append(work)
                continue
            except Error as error:
                work.finish(error)
                continue
            placements = placed[work] = []
            work.ranges = []
            for partition, encoded in work.appends:
                tail = tails[partition]
                assert tail is not None
                placement = place(tail, encoded, parts.segment_bytes, now_ms)
                tails[partition] = placement.after
                placements.append(placement)
                work.ranges.append(Range(partition, placement.entry.base, encoded.count))
        return placed

    def _check_tail(self, work: Work, partition: Partition, tail: Tail | None) -> None:
        if tail is None:
            self._numbers.pop(partition, None)
            raise _Moved
        if tail.created > work.since.get(partition.topic, tail.created):
            raise UnknownTopic(partition.topic, str(self._parts.layout.directory))
        if tail.sealed:
            raise Sealed(partition.topic, partition.storage)

    def _find_orphans(self, placed: dict[Work, list[Placement]]) -> bool:
        """Create missing files; return True if any file has bytes beyond its committed end."""
        found = opened = False
        seen: set[tuple[int, int]] = set()
        directories: set[Path] = set()
        for work, placements in placed.items():
            for (partition, _), placement in zip(work.appends, placements, strict=True):
                key = (placement.after.number, placement.segment)
                if key in seen:
                    continue
                seen.add(key)
                segment = self._segment(partition, placement)
                if placement.rolls:
                    self._parts.layout.make_partition_directory(segment.directory)
                    segment.create()
                    directories.add(segment.directory)
                    if placement.before.segment is None:
                        directories.update(segment.directory.parents[:_HUB_DEPTH])
                if not segment.is_open:
                    opened = True
                found |= self._log_bytes(segment, placement) > placement.entry.position
        if opened:  # After the paths were used: so they led to the hub.
            self._parts.identity.check()
        # Existing files are synced too: their creator may have been killed before its sync.
        if directories:
            disk = self._parts.disk
            self._commit_point.sync(partial(disk.sync_directory, path) for path in directories)
        return found

    def _log_bytes(self, segment: Segment, placement: Placement) -> int:
        """Return the length of a log file; `HubReplaced` if the file was removed, but its topic was
        not deleted."""
        try:
            if not segment.is_open:
                segment.open_for_append()
            return segment.log_bytes()
        except FileNotFoundError as error:
            parts = self._parts
            with NO_FORK:
                tail = read_tail(parts.database.writer, placement.after.number)
            if tail is None or tail.segment != placement.before.segment:
                return 0  # The commit refuses the append.
            found = f"{segment.log_path} was removed"
            raise HubReplaced(str(parts.layout.directory), found) from error

    def _segment(self, partition: Partition, placement: Placement) -> Segment:
        return self._parts.segments.get(partition, placement.after.number, placement.segment)

    def _write(self, placed: dict[Work, list[Placement]]) -> None:
        parts = self._parts
        written: dict[int, Segment] = {}
        for work, placements in placed.items():
            for (partition, _), placement in zip(work.appends, placements, strict=True):
                data = stamp(placement)
                segment = self._segment(partition, placement)
                if placement.rolls and placement.before.segment is not None:
                    self._close_segment(partition, placement.before)
                segment.write(placement.entry, data, placement.encoded.positions)
                written[id(segment)] = segment
        parts.reach("written")
        if parts.syncs and written:
            self._commit_point.sync(segment.sync for segment in written.values())
            parts.reach("synced")

    def _close_segment(self, partition: Partition, tail: Tail) -> None:
        assert tail.segment is not None
        full = self._parts.segments.get(partition, tail.number, tail.segment)
        self._commit_point.sync((full.sync, full.sync_positions))

    def _fold(self, placed: dict[Work, list[Placement]], deadline: float) -> None:
        crowded = {
            partition: placement.after.number
            for work, placements in placed.items()
            for (partition, _), placement in zip(work.appends, placements, strict=True)
            if placement.after.entries > FOLD_ABOVE and work.finished and work.error is None
        }
        for partition, number in crowded.items():
            fold(self._parts, self._commit_point, partition, number, deadline)

    def _publish(
        self,
        group: Sequence[Work],
        placed: dict[Work, list[Placement]],
        again: list[Work],
        deadline: float,
    ) -> None:
        parts = self._parts
        waiting = [work for work in group if not work.finished and work not in again]
        if not waiting:
            return
        done: list[Work] = []
        waited = parts.locks.lock_commit(deadline)
        try:
            if waited:
                parts.identity.check()
            parts.reach("commit-locked")
            self._commit_point.commit(
                lambda writer: self._apply(writer, waiting, placed, done, again),
                lambda writer: _are_committed(
                    writer, [placed[work] for work in done if work.appends]
                ),
            )
            parts.reach("committed")
            self._commit_point.checkpoint_if_due()
        finally:
            parts.locks.unlock_commit()
        for work in done:
            work.finish()
        if done:
            parts.wake.touch()

    def _apply(
        self,
        writer: apsw.Connection,
        waiting: Sequence[Work],
        placed: dict[Work, list[Placement]],
        done: list[Work],
        again: list[Work],
    ) -> None:
        """Write the rows of each piece of work.

        After a piece that drops out, later appends to its partitions have wrong places; they are
        executed again.
        """
        alone = len(waiting) == 1
        for work in waiting:
            try:
                if not alone:
                    writer.execute("SAVEPOINT work")
                self._apply_one(writer, work, placed.get(work, ()))
            except (Error, _Moved) as error:
                writer.execute("ROLLBACK" if alone else "ROLLBACK TO work")
                if isinstance(error, _Moved):
                    again.append(work)
                else:
                    work.finish(error)
            else:
                done.append(work)
            if not alone:
                writer.execute("RELEASE work")
        self._parts.reach("applied")

    def _apply_one(
        self, writer: apsw.Connection, work: Work, placements: Iterable[Placement]
    ) -> None:
        work.check(writer)
        for (partition, _), placement in zip(work.appends, placements, strict=True):
            if not commit_rows(writer, placement):
                self._check_tail(work, partition, read_tail(writer, placement.after.number))
                raise _Moved
        work.result = work.write(writer)


def _refuse(group: Sequence[Work], partition: Partition, error: BackendUnavailable) -> None:
    """Finish the work that needs a partition whose lock timed out; the rest continues."""
    for work in group:
        if any(wanted == partition for wanted, _ in work.appends):
            work.finish(error)


class _Moved(Exception):
    """The partition has moved since it was read; read it again and retry."""


def _are_committed(connection: apsw.Connection, placed: Sequence[Sequence[Placement]]) -> bool:
    """True if the appends of a group, all of one commit, are committed."""
    if not placed:
        return False
    after = placed[-1][-1].after
    tail = read_tail(connection, after.number)
    return tail is not None and tail.next_offset >= after.next_offset
