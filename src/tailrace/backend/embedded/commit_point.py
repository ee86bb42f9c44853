"""Commits to `hub.db`, and the outcome of a commit that fails.

A COMMIT that raised may have happened. A small commit is made then, which also replaces frames
that the failed one may have left in the WAL. If it succeeds, a read of `hub.db` shows the outcome
of the first; if it fails too, callers get `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import apsw

from tailrace.backend.embedded.access import not_writable
from tailrace.backend.embedded.database import Database
from tailrace.backend.embedded.identity import HubIdentity
from tailrace.backend.embedded.layout import Layout, disk_full, is_full
from tailrace.backend.embedded.locks import Locks
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.sync_threads import SyncThreads
from tailrace.backend.embedded.wake import WakeFile
from tailrace.backend.forking import NO_FORK
from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, HubClosed, OutcomeUnknown, ReadOnlyHub
from tailrace.log.disk import Disk

_FAILED_SYNCS = frozenset((apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC))


@dataclass(slots=True)
class Parts:
    """The parts that a writer works with, all of one hub and one process."""

    layout: Layout
    identity: HubIdentity
    database: Database
    locks: Locks
    wake: WakeFile
    segments: Segments
    disk: Disk
    clock: Clock
    segment_bytes: int
    syncs: bool
    reach: Callable[[str], None]
    """Called with the name of each point of an append when it is reached: tests kill there."""


class CommitPoint:
    """The commits of one process. Used by one thread at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._threads = SyncThreads()
        self._stopped_by: Exception | None = None

    def check_not_stopped(self) -> None:
        """Raise `HubClosed` if a sync has failed before."""
        if self._stopped_by is not None:
            raise HubClosed(
                f"this process stopped writing after a failed sync: {self._stopped_by}",
                "open the hub again: all acknowledged records are stored",
            )

    def sync(self, syncs: Iterable[Callable[[], None]]) -> None:
        """Execute all syncs, several at once; after one that fails, this process no longer
        writes."""
        self._threads.run(partial(self._sync, sync) for sync in syncs)

    def _sync(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as error:
            # The kernel may have dropped the pages it could not write, and reports that only once.
            # A second sync that succeeds would prove nothing, so this process acknowledges
            # nothing more.
            self._stopped_by = error
            raise

    def close(self) -> None:
        """End the threads of syncs. Nothing is committed after this."""
        self._threads.close()

    def change(
        self,
        make: Callable[[apsw.Connection], None],
        deadline: float,
        happened: Callable[[apsw.Connection], bool] = lambda _: False,
    ) -> None:
        """Commit rows of the backend itself, under the commit lock."""
        parts = self._parts
        parts.locks.lock_commit(deadline)
        try:
            parts.identity.check()
            self.commit(make, happened)
        finally:
            parts.locks.unlock_commit()

    def commit(
        self,
        make: Callable[[apsw.Connection], None],
        happened: Callable[[apsw.Connection], bool] = lambda _: False,
    ) -> None:
        """Execute one transaction of `hub.db`; the caller holds the commit lock.

        `make` may roll back its transaction; then nothing is committed. After a COMMIT that raised,
        `happened` returns True if it was committed all the same. `HubReplaced` if the hub was
        removed since the caller checked its identity.
        """
        with NO_FORK:
            writer = self._parts.database.writer
            try:
                writer.execute("BEGIN IMMEDIATE")
                if self._parts.locks.are_removed:
                    self._parts.identity.check()
                make(writer)
                self._parts.reach("commit")
            except BaseException as error:
                _roll_back(writer)
                if isinstance(error, apsw.Error):
                    raise self.unavailable(error) from error
                raise
            NO_FORK.check_whole()
            if not writer.in_transaction:
                return
            try:
                writer.execute("COMMIT")
            except apsw.Error as error:
                _roll_back(writer)
                self._resolve_outcome(error, happened)

    def checkpoint_if_due(self) -> None:
        """Move the WAL into the database if it has grown. A failure affects no committed data."""
        try:
            self._parts.database.checkpoint_if_due()
        except apsw.Error as error:
            # The WAL stays as it is and the next commit tries again, unless a sync failed.
            self.unavailable(error)

    def _resolve_outcome(
        self, error: apsw.Error, happened: Callable[[apsw.Connection], bool]
    ) -> None:
        """After a COMMIT that raised: return if it happened; raise if not, or if it is unknown."""
        writer = self._parts.database.writer
        unavailable = self.unavailable(error)
        try:
            writer.execute("BEGIN IMMEDIATE")
            touch(writer)
            writer.execute("COMMIT")
            done = happened(writer)
        except apsw.Error as second:
            _roll_back(writer)
            raise OutcomeUnknown(
                f"the commit may or may not be stored: {error}",
                "check the outcome before you retry",
            ) from second
        if not done:
            raise unavailable from error

    def unavailable(self, error: OSError | apsw.Error) -> BackendUnavailable | ReadOnlyHub:
        """Return the error of a failed write. Releases the reserve on a full disk, for commits that
        free space."""
        directory = self._parts.layout.directory
        known = self._parts.identity.replaced() or not_writable(directory, error)
        if known is not None:
            return known
        if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and is_full(error)):
            self._parts.layout.release_reserve()
            return disk_full(directory, error)
        if getattr(error, "extendedresult", None) in _FAILED_SYNCS:
            self._stopped_by = error
        return BackendUnavailable(
            f"{directory} could not be written: {error}", "nothing was written"
        )


def touch(connection: apsw.Connection) -> None:
    """Make the smallest possible commit."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'touched'")


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
