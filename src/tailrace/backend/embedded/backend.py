"""The embedded backend: a hub is a directory of one host, opened by any number of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from tailrace.backend.capabilities import Compacted, DirectoryUse, HubInfo
from tailrace.backend.contract import Change, Hold, Transaction
from tailrace.backend.embedded import opening
from tailrace.backend.embedded.access import not_writable
from tailrace.backend.embedded.commit_point import CommitPoint, Parts
from tailrace.backend.embedded.committer import Committer, Work
from tailrace.backend.embedded.compaction import Compactor
from tailrace.backend.embedded.database import Database
from tailrace.backend.embedded.holds import Holds
from tailrace.backend.embedded.identity import HubIdentity
from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.leftovers import Leftovers
from tailrace.backend.embedded.locks import Locks
from tailrace.backend.embedded.log import EmbeddedLog
from tailrace.backend.embedded.read_only import yielding_to_writer
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.snapshots import Snapshots
from tailrace.backend.embedded.tables import (
    EmbeddedStore,
    EmbeddedTable,
    check_transaction,
    write_tables,
)
from tailrace.backend.embedded.wake import WakeFile, WakeFollower
from tailrace.backend.embedded.writer import GroupWriter
from tailrace.backend.forking import NO_FORK, reset_after_fork
from tailrace.clock import Clock, SystemClock
from tailrace.errors import (
    BackendUnavailable,
    DiskFull,
    Error,
    HubClosed,
    InvalidValue,
    UnknownHub,
)
from tailrace.log.columns import encode
from tailrace.log.disk import Disk
from tailrace.log.segment import SEGMENT_BYTES_MAX
from tailrace.log.sharing import open_or_create
from tailrace.message import Partition, Range

SEGMENT_BYTES = 2**30
LOCK_TIMEOUT_S = 10.0
SEGMENT_BYTES_MIN = 64


def _do_nothing(_point: str) -> None:
    """Do nothing at a point of an append."""


class EmbeddedBackend:
    """See `tailrace.backend.contract.Backend`. Create one with `open`."""

    def __init__(self, name: str, parts: Parts, timeout_s: float, info: HubInfo) -> None:
        self.name = name
        self.info = info
        self._parts: Parts | None = parts
        self._layout = parts.layout
        commit_point = self._commit_point = CommitPoint(parts)
        self._committer = Committer(GroupWriter(parts, commit_point).execute, timeout_s)
        self.log = EmbeddedLog(parts.layout, self._database, lambda: self._opened().segments)
        self.table = EmbeddedTable(self._database)
        self.store = _RemovingStore(self._database, self._submit, parts.layout, parts.segments)
        self._holds = Holds(parts.layout.holds)
        self._leftovers = Leftovers(self._opened, commit_point, self._committer, self.hold)
        self._compactor = Compactor(
            self._opened, self.log, commit_point, self._committer, self._leftovers, timeout_s
        )
        reset_after_fork(self)

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        sync: str | None = None,
        create: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Clock | None = None,
        disk: Disk | None = None,
        boot: str | None = None,
        reach: Callable[[str], None] = _do_nothing,
    ) -> EmbeddedBackend:
        """Open the hub in a directory; create it if there is none, unless `create` is False.

        `sync` is `"batch"` (acknowledged means on disk) or `"none"`. A new hub stores it; for an
        existing hub it must be the stored one.
        """
        opening.check_sync(sync)
        if not SEGMENT_BYTES_MIN <= segment_bytes <= SEGMENT_BYTES_MAX:
            raise InvalidValue(
                "segment_bytes", segment_bytes, f"{SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )
        # Files are opened when they are needed, also after the process has changed its directory.
        layout = Layout(Path(directory).absolute())
        clock, disk, boot = clock or SystemClock(), disk or Disk(), boot or opening.boot_id()
        with yielding_to_writer(layout.directory):
            locks = _open_locks(layout, create=create)
            try:
                locks.lock_commit(time.monotonic() + lock_timeout_s)
                try:
                    with NO_FORK:
                        info = _prepare(layout, disk, sync, boot, clock.now_ms(), create=create)
                    wake = WakeFile(layout.wake)
                    identity = HubIdentity(layout.directory, info.hub_id)
                finally:
                    locks.unlock_commit()
                synchronous = opening.SYNC_POLICIES[info.sync]
                database = Database(
                    layout.database, layout.pause, synchronous=synchronous, identity=identity
                )
                _remove_deleted(layout, database)
                parts = Parts(
                    layout=layout,
                    identity=identity,
                    database=database,
                    locks=locks,
                    wake=wake,
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
                raise _not_opened(layout, error) from error
        backend = cls(str(directory), parts, lock_timeout_s, info)
        backend._leftovers.remove_all()
        return backend

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit, and return the range of each append; see the contract."""
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
        """Keep the last record of every key; see `tailrace.backend.capabilities.Compacts`."""
        return self._compactor.compact(partition, below)

    def accept_gaps(self) -> None:
        """Remove the gaps of `info.gaps` from the hub."""
        self._submit(Work(check=lambda _: None, write=opening.accept_gaps))

    def directory_use(self) -> DirectoryUse:
        """Measure the files of the directory and its disk now."""
        return self._layout.use()

    def follower(self) -> WakeFollower:
        """Return a new waiter for commits of this and all other processes."""
        self._check_identity()
        return WakeFollower(self._layout.wake)

    def hold(self, name: str, owner: str) -> Hold:
        """Hold a name exclusively; see the contract."""
        self._check_identity()
        hold = self._holds.acquire(name, owner)
        if self._parts is None:  # Closed by another thread meanwhile.
            hold.release()
        self._opened()
        return hold

    def holder(self, name: str) -> str | None:
        """Return the owner text of the name's holder; None if the name is not held."""
        self._check_identity()
        return self._holds.holder(name)

    def beats(self, name: str) -> int | None:
        """Return a number that each beat changes; None if the name is not held."""
        self._check_identity()
        return self._holds.beats(name)

    def silent_s(self, name: str) -> float | None:
        """Return the seconds since the holder last beat; None if the name is not held."""
        self._check_identity()
        return self._holds.silent_s(name)

    @property
    def meeting_place(self) -> Path:
        """The directory where processes that have the hub open leave sockets for each other."""
        return self._layout.sockets

    def close(self) -> None:
        """Close the backend. Closing again does nothing."""
        with self._committer.leading:
            parts, self._parts = self._parts, None
            if parts is not None:
                self._holds.close()
                self._commit_point.close()
                parts.segments.clear()
                parts.database.close()
                parts.wake.close()
                parts.locks.close()

    def _opened(self) -> Parts:
        parts = self._parts
        if parts is None:
            raise HubClosed(f"the hub {self._layout.directory} is closed", "open it again")
        return parts

    def _check_identity(self) -> None:
        self._opened().identity.check()

    def _database(self) -> Database:
        return self._opened().database

    def _submit(self, work: Work) -> Any:
        self._opened()
        return self._committer.submit(work)

    def after_fork(self) -> None:
        """In a forked child: drop everything that threads of the parent may have been using."""
        self._committer.after_fork()
        if self._parts is not None:
            self._parts.wake.after_fork()
            self._parts.segments.after_fork()


class _RemovingStore(EmbeddedStore):
    """The store, which also removes the files of deleted storage topics."""

    def __init__(
        self,
        database: Callable[[], Snapshots],
        submit: Callable[[Work], Any],
        layout: Layout,
        segments: Segments,
    ) -> None:
        super().__init__(database, submit, layout.directory)
        self._layout = layout
        self._segments = segments

    def commit(self, change: Change) -> int:
        """Commit the whole change; see the contract."""
        if not change.delete:
            return super().commit(change)
        try:
            version = super().commit(change)
        except DiskFull:
            # The reserve is released by now, so a commit that frees space has room.
            version = super().commit(change)
        self._segments.clear()
        _remove_deleted(self._layout, self._database())
        return version


def _open_locks(layout: Layout, *, create: bool) -> Locks:
    """Create the hub's directory, if that is allowed and needed, and open the lock files."""
    try:
        if not create:
            layout.check_existing()
        layout.make_directory()
        return Locks(layout.partition_locks, layout.commit_lock)
    except Error:
        raise
    except OSError as error:
        raise _not_opened(layout, error) from error


def _not_opened(layout: Layout, error: OSError | apsw.Error) -> Error:
    return not_writable(layout.directory, error) or BackendUnavailable(
        f"{layout.directory} cannot be opened as a hub: {error}"
    )


def _prepare(
    layout: Layout, disk: Disk, sync: str | None, boot: str, now_ms: int, *, create: bool
) -> HubInfo:
    """Create the hub or begin its next incarnation, under the commit lock."""
    layout.release_reserve_if_full()
    if not layout.database.exists():
        # SQLite would create it without the right to write for the group; its other files get the
        # rights of this one. Nobody has it open, so closing it drops no lock of SQLite.
        os.close(open_or_create(layout.database))
    database = Database(layout.database, layout.pause, synchronous="full")
    try:
        info = opening.read_info(database.writer, layout.directory)
        if info is None and not create:
            raise UnknownHub(str(layout.directory))
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


def _remove_deleted(layout: Layout, database: Snapshots) -> None:
    # The rows are read after the directories are listed, because a partition's directory is
    # created only after its row.
    listed = layout.listed_numbers()
    known = {number for (number,) in database.rows("SELECT id FROM partitions")}
    layout.remove(listed - known)
