"""Committing to `hub.db`, and what to make of it when that fails.

A COMMIT that raised is not "as it was". After a small commit that succeeds, which also takes
the place of frames that the failed one may have left, a look tells whether it happened; when
the small commit fails too, callers get `OutcomeUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import apsw

from tailrace.backend.embedded.database import Database
from tailrace.backend.embedded.forking import NO_FORK
from tailrace.backend.embedded.layout import Layout, disk_full, is_full
from tailrace.backend.embedded.locks import Locks
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.wake import WakeFile
from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, HubClosed, OutcomeUnknown
from tailrace.log.disk import Disk

_FAILED_SYNCS = frozenset((apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC))


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
    """Called with the name of each point of an append as it is reached: tests kill there."""


class Publisher:
    """The commits of one process. One thread of it is in here at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stopped_by: Exception | None = None

    def check_going(self) -> None:
        """Refuse all work once a sync has failed."""
        if self._stopped_by is not None:
            raise HubClosed(
                f"this process stopped writing after a failed sync: {self._stopped_by}",
                "open the hub again: what was acknowledged is there",
            )

    def sync(self, syncs: Iterable[Callable[[], None]]) -> None:
        """Do them all; after one that fails this process writes no more."""
        try:
            for sync in syncs:
                sync()
        except OSError as error:
            # The kernel may have dropped the pages it could not write, and says so once. A second
            # sync that succeeds would prove nothing, so this process acknowledges nothing more.
            self._stopped_by = error
            raise

    def change(
        self,
        make: Callable[[apsw.Connection], None],
        deadline: float,
        happened: Callable[[apsw.Connection], bool] = lambda _: False,
    ) -> None:
        """Commit rows of our own, under the commit lock."""
        parts = self._parts
        parts.locks.lock_commit(deadline)
        try:
            self.commit(make, happened)
        finally:
            parts.locks.unlock_commit()

    def commit(
        self,
        make: Callable[[apsw.Connection], None],
        happened: Callable[[apsw.Connection], bool] = lambda _: False,
    ) -> None:
        """One transaction of `hub.db`; the caller holds the commit lock.

        `make` may roll back what it began, and then nothing is committed. `happened` says,
        after a COMMIT that raised, whether it was done all the same.
        """
        with NO_FORK:
            writer = self._parts.database.writer
            try:
                writer.execute("BEGIN IMMEDIATE")
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
                self._settle(error, happened)

    def checkpoint_if_due(self) -> None:
        """Move the WAL into the database where it has grown. What is committed stands anyway."""
        try:
            self._parts.database.checkpoint_if_due()
        except apsw.Error as error:
            # The WAL stays as it is and the next commit tries again, unless a sync failed.
            self.unavailable(error)

    def _settle(self, error: apsw.Error, happened: Callable[[apsw.Connection], bool]) -> None:
        """After a COMMIT that raised: return if it happened, raise if not or if nobody can tell."""
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
                f"the commit may or may not be stored: {error}", "look before you repeat it"
            ) from second
        if not done:
            raise unavailable from error

    def unavailable(self, error: OSError | apsw.Error) -> BackendUnavailable:
        """What a caller is told of a failed write. Room is made for commits that free more."""
        directory = self._parts.layout.directory
        if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and is_full(error)):
            self._parts.layout.give_up_reserve()
            return disk_full(directory, error)
        if getattr(error, "extendedresult", None) in _FAILED_SYNCS:
            self._stopped_by = error
        return BackendUnavailable(
            f"{directory} could not be written: {error}", "nothing was written"
        )


def touch(connection: apsw.Connection) -> None:
    """The smallest commit there is."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'touched'")


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
