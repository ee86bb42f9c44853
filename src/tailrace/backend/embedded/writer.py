"""Carrying a group of work into the hub: bytes into segments, then one commit of `hub.db`.

In this order: take the locks of the partitions; read their tails; write the bytes at the tails; sync them; take the commit
lock; check fences and seals and write the rows; COMMIT; wake followers. Bytes that no committed row names do not exist,
so there is nothing to undo and nothing to recover, wherever the process dies.

*Orphan frames.* A process killed inside COMMIT may leave frames in the WAL that the next recovery takes for committed.
A log file longer than its committed tail is the sign that this may be so. Before anything is written over such bytes,
a small commit of our own takes the place of such frames, and the tails are read again.

*A COMMIT that raised* is not "as it was": after a small commit that succeeds, the tails tell whether it happened;
when that fails too, the callers get `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import apsw

from tailrace.backend.embedded.appending import Placement, Tail, commit_rows, place, read_tail, stamped
from tailrace.backend.embedded.committer import Work
from tailrace.backend.embedded.database import Database
from tailrace.backend.embedded.layout import Layout, disk_full, is_full
from tailrace.backend.embedded.locks import Locks
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.wake import WakeFile
from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, Error, HubClosed, OutcomeUnknown, Sealed, UnknownTopic
from tailrace.log.disk import Disk
from tailrace.log.index import BatchEntry
from tailrace.log.segment import Segment
from tailrace.message import Partition, Range

FOLD_ABOVE = 8192
FOLD_COUNT = 4096
"""Above so many entries of a partition in `hub.db`, the oldest so many of one segment go to its index."""


@dataclass(slots=True)
class Parts:
    """What a writer works with, all of one hub and one process."""

    layout: Layout
    database: Database
    locks: Locks
    wake: WakeFile
    segments: Segments
    disk: Disk
    clock: Clock
    segment_bytes: int
    syncs: bool
    reach: Callable[[str], None]
    """Called with the name of each point of an append as it is reached; tests stop or kill there."""


class Writer:
    """One thread of the process is in here at a time (`Committer` sees to that)."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._numbers: dict[Partition, int] = {}
        self._stopped_by: Exception | None = None

    def carry(self, group: list[Work], deadline: float) -> Iterable[Work]:
        """Do a group of work, settle each piece, and give back, in order, what has to be done again."""
        if self._stopped_by is not None:
            raise HubClosed(
                f"this process stopped writing after a failed sync: {self._stopped_by}",
                "open the hub again: what was acknowledged is there",
            )
        parts = self._parts
        locked: list[int] = []
        again: list[Work] = []
        try:
            numbers = self._admitted(group)
            for partition, number in sorted(numbers.items()):
                parts.locks.lock_partition(number, deadline, f"partition {partition}")
                locked.append(number)
            parts.reach("locked")
            placed = self._placed(group, numbers, again, deadline)
            self._write(placed)
            self._publish(group, placed, again, deadline)
            for partition, number in numbers.items():
                self._fold_if_due(partition, number, deadline)
            return again
        except (OSError, apsw.Error) as error:
            raise self._unavailable(error) from error
        finally:
            for number in locked:
                parts.locks.unlock_partition(number)

    def change(self, make: Callable[[apsw.Connection], None], deadline: float) -> None:
        """Commit rows that no caller waits for with a result."""
        parts = self._parts
        parts.locks.lock_commit(deadline)
        try:
            self._commit(make)
        finally:
            parts.locks.unlock_commit()

    def _admitted(self, group: Sequence[Work]) -> dict[Partition, int]:
        """The numbers of the partitions to be written. Work that is bound to be refused drops out here."""
        numbers: dict[Partition, int] = {}
        writer = self._parts.database.writer
        room = False
        for work in group:
            if not work.appends:
                continue
            try:
                work.check(writer)
                if not room:
                    self._parts.layout.keep_reserve()
                    room = True
                wanted = {partition: self._number(partition) for partition, _ in work.appends}
            except Error as error:
                work.finish(error)
            else:
                numbers |= wanted
        return numbers

    def _number(self, partition: Partition) -> int:
        number = self._numbers.get(partition)
        if number is None:
            row = self._parts.database.writer.execute(
                "SELECT id FROM partitions WHERE topic = ? AND storage = ? AND number = ?", partition
            ).fetchone()
            if row is None:
                raise UnknownTopic(str(partition), str(self._parts.layout.directory))
            number = self._numbers[partition] = row[0]
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
            self.change(_touch, deadline)
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
                    self._check_tail(partition, tails[partition])
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

    def _check_tail(self, partition: Partition, tail: Tail | None) -> None:
        if tail is None:
            self._numbers.pop(partition, None)
            raise _Moved
        if tail.sealed:
            raise Sealed(partition.topic, partition.storage)

    def _find_orphans(self, placed: dict[Work, list[Placement]]) -> bool:
        """Make the files that are missing; True when any holds bytes behind its committed end."""
        found = False
        seen: set[tuple[int, int]] = set()
        for work, placements in placed.items():
            for (partition, _), placement in zip(work.appends, placements, strict=True):
                key = (placement.after.number, placement.segment)
                if key in seen:
                    continue
                seen.add(key)
                segment = self._segment(partition, placement)
                if placement.rolls:
                    self._make_files(segment)
                found |= segment.log_bytes() > placement.entry.position
        return found

    def _segment(self, partition: Partition, placement: Placement) -> Segment:
        parts = self._parts
        number = placement.after.number
        return parts.segments.get(number, placement.segment, parts.layout.partition(partition, number))

    def _make_files(self, segment: Segment) -> None:
        parts = self._parts
        new_directories = []
        directory = segment.directory
        while not directory.exists():
            new_directories.append(directory)
            directory = directory.parent
        segment.directory.mkdir(parents=True, exist_ok=True)
        if segment.create():
            for made in (segment.directory, *(path.parent for path in new_directories)):
                parts.disk.sync_directory(made)

    def _write(self, placed: dict[Work, list[Placement]]) -> None:
        parts = self._parts
        written: dict[int, Segment] = {}
        for work, placements in placed.items():
            for number, (partition, _) in enumerate(work.appends):
                placement, data = stamped(placements[number])
                placements[number] = placement
                segment = self._segment(partition, placement)
                if placement.rolls and placement.before.segment is not None:
                    self._close_segment(partition, placement.before)
                segment.write(placement.entry, data, placement.encoded.positions)
                written[id(segment)] = segment
        parts.reach("written")
        if parts.syncs and written:
            self._sync(segment.sync for segment in written.values())
            parts.reach("synced")

    def _close_segment(self, partition: Partition, tail: Tail) -> None:
        parts = self._parts
        assert tail.segment is not None
        full = parts.segments.get(tail.number, tail.segment, parts.layout.partition(partition, tail.number))
        self._sync((full.sync, full.sync_positions))

    def _sync(self, syncs: Iterable[Callable[[], None]]) -> None:
        try:
            for sync in syncs:
                sync()
        except OSError as error:
            # The kernel may have dropped the pages it could not write, and says so once. A second
            # sync that succeeds would prove nothing, so this process acknowledges nothing more.
            self._stopped_by = error
            raise

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
        parts.locks.lock_commit(deadline)
        try:
            parts.reach("commit-locked")
            self._commit(lambda writer: self._apply(writer, waiting, placed, done, again), placed)
            parts.reach("committed")
            parts.database.checkpoint_if_due()
        finally:
            parts.locks.unlock_commit()
        if done:
            parts.wake.touch()
        for work in done:
            work.finish()

    def _apply(
        self,
        writer: apsw.Connection,
        waiting: Sequence[Work],
        placed: dict[Work, list[Placement]],
        done: list[Work],
        again: list[Work],
    ) -> None:
        """Make the rows of each piece of work.

        Behind one that drops out, the bytes of later appends are in the wrong places: those come again.
        """
        alone = len(waiting) == 1
        displaced = False
        for work in waiting:
            if displaced and work.appends:
                again.append(work)
                continue
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
                displaced = displaced or bool(work.appends)
            else:
                done.append(work)
            if not alone:
                writer.execute("RELEASE work")
        self._parts.reach("applied")

    def _apply_one(self, writer: apsw.Connection, work: Work, placements: Iterable[Placement]) -> None:
        work.check(writer)
        for (partition, _), placement in zip(work.appends, placements, strict=True):
            if not commit_rows(writer, placement):
                self._check_tail(partition, read_tail(writer, placement.after.number))
                raise _Moved
        work.result = work.write(writer)

    def _commit(
        self,
        make: Callable[[apsw.Connection], None],
        placed: dict[Work, list[Placement]] | None = None,
    ) -> None:
        """One transaction of `hub.db`. The caller holds the commit lock."""
        writer = self._parts.database.writer
        try:
            writer.execute("BEGIN IMMEDIATE")
            make(writer)
            self._parts.reach("commit")
        except BaseException as error:
            _roll_back(writer)
            if isinstance(error, apsw.Error):
                raise self._unavailable(error) from error
            raise
        if not writer.in_transaction:
            return
        try:
            writer.execute("COMMIT")
        except apsw.Error as error:
            _roll_back(writer)
            self._settle(error, placed or {})

    def _settle(self, error: apsw.Error, placed: dict[Work, list[Placement]]) -> None:
        """After a COMMIT that raised: return if it happened, raise if it did not or nobody can tell."""
        writer = self._parts.database.writer
        unavailable = self._unavailable(error)
        try:
            writer.execute("BEGIN IMMEDIATE")
            _touch(writer)
            writer.execute("COMMIT")
            last = next((placements[-1] for placements in placed.values() if placements), None)
            tail = None if last is None else read_tail(writer, last.after.number)
        except apsw.Error as second:
            _roll_back(writer)
            raise OutcomeUnknown(
                f"the commit may or may not be stored: {error}", "look before you repeat it"
            ) from second
        if last is None or tail is None or tail.next_offset < last.after.next_offset:
            raise unavailable from error

    def _unavailable(self, error: OSError | apsw.Error) -> BackendUnavailable:
        """What a caller is told of a failed write. Room is made for commits that free more."""
        directory = self._parts.layout.directory
        if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and is_full(error)):
            self._parts.layout.give_up_reserve()
            return disk_full(directory, error)
        if isinstance(error, apsw.IOError) and error.extendedresult in _FAILED_SYNCS:
            self._stopped_by = error
        return BackendUnavailable(f"{directory} could not be written: {error}", "nothing was written")

    def _fold_if_due(self, partition: Partition, number: int, deadline: float) -> None:
        tail = read_tail(self._parts.database.writer, number)
        if tail is None or tail.entries <= FOLD_ABOVE:
            return
        try:
            self._fold(partition, number, deadline)
        except (OSError, apsw.Error, BackendUnavailable):
            # What was appended is stored. The next append to this partition folds instead.
            return

    def _fold(self, partition: Partition, number: int, deadline: float) -> None:
        parts = self._parts
        writer = parts.database.writer
        rows = writer.execute(
            "SELECT * FROM entries WHERE partition = ? ORDER BY base LIMIT ?", (number, FOLD_COUNT)
        ).fetchall()
        base = rows[0][-1]
        entries = [BatchEntry(*row[1:-1]) for row in rows if row[-1] == base]
        found = writer.execute(
            "SELECT index_bytes FROM segments WHERE partition = ? AND base = ?", (number, base)
        ).fetchone()
        segment = parts.segments.get(number, base, parts.layout.partition(partition, number))
        index_bytes = segment.fold(entries, found[0])
        self._sync((segment.sync_index,))
        parts.reach("fold-written")

        def fold(connection: apsw.Connection) -> None:
            connection.execute(
                "DELETE FROM entries WHERE partition = ? AND base <= ?", (number, entries[-1].base)
            )
            connection.execute(
                "UPDATE segments SET index_bytes = ? WHERE partition = ? AND base = ?",
                (index_bytes, number, base),
            )
            connection.execute(
                "UPDATE partitions SET entries = entries - ? WHERE id = ?", (len(entries), number)
            )

        self.change(fold, deadline)
        parts.reach("folded")


class _Moved(Exception):
    """The partition is not where it was a moment ago; look again and repeat."""


_FAILED_SYNCS = frozenset((apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC))


def _touch(connection: apsw.Connection) -> None:
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'touched'")


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")

