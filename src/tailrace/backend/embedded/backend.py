"""The embedded backend: a hub is a directory of one host, opened by any number of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from tailrace.backend.contract import Change, Hold, Transaction
from tailrace.backend.embedded import opening
from tailrace.backend.embedded.committer import Committer, Work
from tailrace.backend.embedded.compaction import Compacted, Compactor
from tailrace.backend.embedded.database import Database
from tailrace.backend.embedded.forking import NO_FORK, begin_anew_after_fork
from tailrace.backend.embedded.holds import Holds
from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.locks import Locks
from tailrace.backend.embedded.publisher import Parts, Publisher
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.strays import Strays
from tailrace.backend.embedded.tables import (
    EmbeddedStore,
    EmbeddedTable,
    check_transaction,
    write_tables,
)
from tailrace.backend.embedded.wake import WakeFile, WakeFollower
from tailrace.backend.embedded.writer import Writer
from tailrace.clock import Clock, SystemClock
from tailrace.errors import BackendUnavailable, DiskFull, Error, HubClosed, InvalidValue
from tailrace.log.columns import encode
from tailrace.log.disk import Disk
from tailrace.log.segment import SEGMENT_BYTES_MAX
from tailrace.message import Partition, Range

SEGMENT_BYTES = 2**30
LOCK_TIMEOUT_S = 10.0
SEGMENT_BYTES_MIN = 64


def _go_on(_point: str) -> None:
    """What happens at each point of an append: nothing."""


class EmbeddedBackend:
    """See `tailrace.backend.contract.Backend`. Made by `open`."""

    def __init__(self, name: str, parts: Parts, timeout_s: float, info: opening.HubInfo) -> None:
        self.name = name
        self.info = info
        self._parts: Parts | None = parts
        self._layout = parts.layout
        publisher = Publisher(parts)
        self._committer = Committer(Writer(parts, publisher).carry, timeout_s)
        self.log = EmbeddedLog(parts.layout, self._database, lambda: self._opened().segments)
        self.table = EmbeddedTable(self._database)
        self.store = _RemovingStore(self._database, self._submit, parts.layout, parts.segments)
        self._holds = Holds(parts.layout.holds)
        self._strays = Strays(self._opened, publisher, self._committer, self.hold)
        self._compactor = Compactor(
            self._opened, self.log, publisher, self._committer, self._strays, timeout_s
        )
        begin_anew_after_fork(self)

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        sync: str | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Clock | None = None,
        disk: Disk | None = None,
        boot: str | None = None,
        reach: Callable[[str], None] = _go_on,
    ) -> EmbeddedBackend:
        """Open the hub in a directory, making it where there is none.

        `sync` is `"batch"` (acknowledged means on disk) or `"none"`; a new hub keeps it, an old
        one must agree.
        """
        opening.check_sync(sync)
        if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX:
            raise InvalidValue(
                "segment_bytes", segment_bytes, f"{SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )
        # Files are opened when they are needed, also after the process has changed its directory.
        layout = Layout(Path(directory).absolute())
        clock = clock or SystemClock()
        disk = disk or Disk()
        boot = boot or opening.boot_id()
        try:
            layout.make_directory()
            locks = Locks(layout.partition_locks, layout.commit_lock)
        except OSError as error:
            raise BackendUnavailable(f"{directory} cannot be opened as a hub: {error}") from error
        try:
            locks.lock_commit(time.monotonic() + lock_timeout_s)
            try:
                with NO_FORK:
                    info = _prepare(layout, disk, sync, boot, clock.now_ms())
            finally:
                locks.unlock_commit()
            synchronous = opening.SYNC_POLICIES[info.sync]
            database = Database(layout.database, layout.pause, synchronous=synchronous)
            _remove_strays(layout, database)
            parts = Parts(
                layout=layout,
                database=database,
                locks=locks,
                wake=WakeFile(layout.wake),
                segments=Segments(layout, disk),
                disk=disk,
                clock=clock,
                segment_bytes=segment_bytes,
                syncs=info.sync == "batch",
                reach=reach,
            )
        except BaseException as error:
            locks.close()
            if isinstance(error, Error) or not isinstance(error, OSError | apsw.Error):
                raise
            raise BackendUnavailable(f"{directory} cannot be opened as a hub: {error}") from error
        backend = cls(str(directory), parts, lock_timeout_s, info)
        backend._strays.remove_all()
        return backend

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit, and say where each append landed; see the contract."""
        appends = []
        for partition, records in transaction.appends:
            encoded = encode(records)
            if not encoded.count:
                raise InvalidValue(f"the number of records for {partition}", 0, "1 or more")
            appends.append((partition, encoded))
        work = Work(
            check=lambda connection: check_transaction(connection, transaction),
            write=lambda connection: write_tables(connection, transaction),
            appends=tuple(appends),
            since=transaction.since,
        )
        self._submit(work)
        return work.ranges

    def compact(self, partition: Partition, below: Callable[[], int]) -> Compacted:
        """Of every full segment wholly below an offset, keep the last record of every key.

        `below` is asked again for each, within the commit: it says that nobody needs the others,
        as `tailrace.topic.consumers.low_mark` does. `Busy` when another process is at it.
        """
        return self._compactor.compact(partition, below)

    def accept_gaps(self) -> None:
        """Forget the gaps of `info.gaps`, once somebody has seen to them."""
        self._submit(Work(check=lambda _: None, write=opening.accept_gaps))

    def follower(self) -> WakeFollower:
        """A new waiter for commits, by this or any other process."""
        self._opened()
        return WakeFollower(self._layout.wake)

    def hold(self, name: str, owner: str) -> Hold:
        """Hold a name alone; see the contract."""
        self._opened()
        hold = self._holds.take(name, owner)
        if self._parts is None:  # closed meanwhile
            hold.release()
        self._opened()
        return hold

    def holder(self, name: str) -> str | None:
        """The owner's text of whoever holds the name now; None when nobody does."""
        self._opened()
        return self._holds.holder(name)

    def beats(self, name: str) -> int | None:
        """A number that each beat changes; None when nobody holds the name."""
        self._opened()
        return self._holds.beats(name)

    def silent_s(self, name: str) -> float | None:
        """How long ago the holder last beat; None when nobody holds the name."""
        self._opened()
        return self._holds.silent_s(name)

    @property
    def meeting_place(self) -> Path:
        """Where processes that have opened the hub leave sockets for each other."""
        return self._layout.sockets

    def close(self) -> None:
        """End all use. Closing again does nothing."""
        with self._committer.leading:
            parts, self._parts = self._parts, None
            if parts is not None:
                self._holds.close()
                parts.segments.clear()
                parts.database.close()
                parts.wake.close()
                parts.locks.close()

    def _opened(self) -> Parts:
        parts = self._parts
        if parts is None:
            raise HubClosed(f"the hub {self._layout.directory} is closed", "open it again")
        return parts

    def _database(self) -> Database:
        return self._opened().database

    def _submit(self, work: Work) -> Any:
        self._opened()
        return self._committer.submit(work)

    def after_fork(self) -> None:
        """In a forked child: use nothing on that threads of the parent may have been at."""
        self._committer.after_fork()
        if self._parts is not None:
            self._parts.wake.after_fork()
            self._parts.segments.after_fork()


class _RemovingStore(EmbeddedStore):
    """The store, which also removes the files of what a change deleted."""

    def __init__(
        self,
        database: Callable[[], Database],
        submit: Callable[[Work], Any],
        layout: Layout,
        segments: Segments,
    ) -> None:
        super().__init__(database, submit, layout.directory)
        self._layout = layout
        self._segments = segments

    def commit(self, change: Change) -> int:
        """Do all of it; see the contract."""
        if not change.delete:
            return super().commit(change)
        try:
            version = super().commit(change)
        except DiskFull:
            # By now the reserve is given up, and its room is there for what makes room.
            version = super().commit(change)
        self._segments.clear()
        _remove_strays(self._layout, self._database())
        return version


def _prepare(
    layout: Layout, disk: Disk, sync: str | None, boot: str, now_ms: int
) -> opening.HubInfo:
    """Make the hub or begin its next incarnation, under the commit lock."""
    layout.make_room()
    database = Database(layout.database, layout.pause, synchronous="full")
    try:
        info = opening.read_info(database.writer, layout.directory)
        if info is None:
            layout.keep_reserve()
            opening.create(database.writer, sync or "batch", boot, now_ms)
            disk.sync_directory(layout.directory)
        else:
            opening.migrate(database.writer, info.format)
        opening.begin_incarnation(database.writer, layout, disk, boot, now_ms)
        info = opening.read_info(database.writer, layout.directory)
        assert info is not None
        opening.check_sync(sync, info.sync)
    finally:
        database.close()
    return info


def _remove_strays(layout: Layout, database: Database) -> None:
    # The rows are read after the directories are listed: a partition's directory is made only
    # after its row.
    listed = layout.listed_numbers()
    known = {number for (number,) in database.rows("SELECT id FROM partitions")}
    layout.remove(listed - known)
