"""A hub that is opened read-only: nothing of it is written, and no right to write is needed.

SQLite reads a WAL database read-only through the shared memory of its writers (`hub.db-shm`), which
it maps read-only: a reader locks what it reads, as any reader does, and sees each commit of a
living writer of any user. Without a living writer SQLite builds that index in its own memory.
Without `hub.db-shm`, as in a backup that lacks it, no process has the hub open; then SQLite needs
neither shared memory nor locks, until a writer creates the file.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import apsw

from tailrace.backend.capabilities import DirectoryUse, HubInfo
from tailrace.backend.contract import Hold, Transaction
from tailrace.backend.embedded import opening
from tailrace.backend.embedded.access import not_readable
from tailrace.backend.embedded.holds import Holds
from tailrace.backend.embedded.identity import READ_FILES, HubIdentity
from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.log import EmbeddedLog
from tailrace.backend.embedded.segments import Segments
from tailrace.backend.embedded.snapshots import Snapshots
from tailrace.backend.embedded.tables import EmbeddedStore, EmbeddedTable
from tailrace.backend.embedded.wake import WakeFollower
from tailrace.backend.forking import NO_FORK
from tailrace.errors import Error, HubClosed, ReadOnlyHub, UnknownHub
from tailrace.log.disk import Disk
from tailrace.log.segment import ReadOnlySegment
from tailrace.message import Range

_FLAGS: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
_BUSY_MS: Final = 10_000


class ReadOnlyDatabase(Snapshots):
    """The connections of one process that only reads."""

    def __init__(self, layout: Layout, identity: HubIdentity | None) -> None:
        self._shared_memory = layout.database.with_name("hub.db-shm")
        self._alone = False
        self._mutex = threading.RLock()
        super().__init__(layout.database, _map_pause(layout.pause), identity)
        with (
            NO_FORK,
            _registry,
        ):  # A writer that is being opened is known here, or knows this database.
            _opened.add(self)
            self._writes_elsewhere = _opening[os.path.realpath(layout.directory)] > 0

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """Provide a connection whose statements all see one instant. Keep the block short."""
        with self._mutex:
            if self._alone and self._shared_memory.exists():
                with NO_FORK:
                    self._close_connections()
            with super().snapshot() as connection:
                yield connection

    def yield_to_writer(self) -> None:
        """Let this process open the same hub for writing.

        SQLite has one mapping of the shared memory for all connections of a process; a read-only
        one would make the writer read-only. So the connections are opened again, without asking
        for a read-only mapping.
        """
        with self._mutex, NO_FORK:
            self._writes_elsewhere = True
            self._close_connections()

    def is_of(self, directory: Path) -> bool:
        """True if this is the database of the hub in a directory."""
        try:
            return self._path.parent.samefile(directory)
        except OSError:
            return False

    def after_fork(self) -> None:
        """In a forked child: close the parent's connections here; the next use opens new ones."""
        self._mutex = threading.RLock()
        super().after_fork()

    def _open_connection(self) -> apsw.Connection:
        self._alone = not self._shared_memory.exists()
        uri = f"{self._path.as_uri()}?mode=ro"
        if self._alone:
            connection = apsw.Connection(uri, flags=_FLAGS, vfs="unix-none")
            connection.pragma("locking_mode", "exclusive")
        else:
            if not self._writes_elsewhere:
                uri += "&readonly_shm=1"
            connection = apsw.Connection(uri, flags=_FLAGS)
        connection.set_busy_timeout(_BUSY_MS)
        return connection

    def _end_pause(self) -> None:
        """Obey no more pauses: this process may not clear the byte."""
        self._pause = mmap.mmap(-1, 1)


class ReadOnlyBackend:
    """See `tailrace.backend.contract.Backend`. Every write raises `ReadOnlyHub`."""

    def __init__(self, name: str, layout: Layout, database: ReadOnlyDatabase, info: HubInfo):
        self.name = name
        self.info = info
        self._layout = layout
        self._database: ReadOnlyDatabase | None = database
        self._segments = Segments(layout, Disk(), ReadOnlySegment)
        self._holds = Holds(layout.holds)
        self.log = EmbeddedLog(layout, self._opened, lambda: self._segments)
        self.table = EmbeddedTable(self._opened)
        self.store = EmbeddedStore(self._opened, self._refuse, layout.directory)

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, sync: str | None = None) -> ReadOnlyBackend:
        """Open the hub in a directory. `UnknownHub` if there is none.

        A hub of an older format is `IncompatibleHub`: opening it for writing upgrades it.
        """
        opening.check_sync(sync)
        layout = Layout(Path(directory).absolute())
        try:
            layout.check_existing()
            database = ReadOnlyDatabase(layout, None)
            with database._mutex, NO_FORK:
                connection = database._connect()
                try:
                    info = opening.read_info(connection, layout.directory)
                finally:
                    connection.close()
        except Error:
            raise
        except (OSError, apsw.Error) as error:
            raise not_readable(layout.directory, error) from error
        database.close()
        if info is None:
            raise UnknownHub(str(layout.directory))
        opening.check_current(info.format, layout.directory)
        opening.check_sync(sync, info.sync)
        identity = HubIdentity(layout.directory, info.hub_id, READ_FILES)
        return cls(str(directory), layout, ReadOnlyDatabase(layout, identity), info)

    def commit(self, _transaction: Transaction) -> list[Range]:
        """Raise `ReadOnlyHub`."""
        self._refuse()

    def accept_gaps(self) -> None:
        """Raise `ReadOnlyHub`."""
        self._refuse()

    def compact(self, *_arguments: object) -> NoReturn:
        """Raise `ReadOnlyHub`."""
        self._refuse()

    def hold(self, _name: str, _owner: str) -> Hold:
        """Raise `ReadOnlyHub`."""
        self._refuse()

    def directory_use(self) -> DirectoryUse:
        """Measure the files of the directory and its disk now."""
        return self._layout.use()

    def follower(self) -> WakeFollower:
        """Return a new waiter for commits of all processes."""
        self._opened().check_identity()
        return WakeFollower(self._layout.wake)

    def holder(self, name: str) -> str | None:
        """Return the owner text of the name's holder; None if the name is not held."""
        self._opened().check_identity()
        return self._holds.holder(name)

    def beats(self, name: str) -> int | None:
        """Return a number that each beat changes; None if the name is not held."""
        self._opened().check_identity()
        return self._holds.beats(name)

    def silent_s(self, name: str) -> float | None:
        """Return the seconds since the holder last beat; None if the name is not held."""
        self._opened().check_identity()
        return self._holds.silent_s(name)

    @property
    def meeting_place(self) -> Path:
        """The directory where processes that have the hub open leave sockets for each other."""
        return self._layout.sockets

    def close(self) -> None:
        """Close the backend. Closing again does nothing."""
        database, self._database = self._database, None
        if database is not None:
            self._segments.clear()
            database.close()

    def _opened(self) -> ReadOnlyDatabase:
        if self._database is None:
            raise HubClosed(f"the hub {self._layout.directory} is closed", "open it again")
        return self._database

    def _refuse(self, *_work: Any) -> NoReturn:
        self._opened()
        directory = self._layout.directory
        raise ReadOnlyHub(
            f"the hub {directory} is open read-only",
            "nothing was written",
            f"to write, open it with tailrace.open({str(directory)!r}), or omit --read-only",
        )


_opened: Final[weakref.WeakSet[ReadOnlyDatabase]] = weakref.WeakSet()
_opening: Final[Counter[str]] = Counter()
"""The number of writers of each directory that are being opened in this process."""
_registry: Final = threading.Lock()


@contextmanager
def yielding_to_writer(directory: Path) -> Iterator[None]:
    """Let this process open a hub for writing that it has open read-only, or opens so meanwhile.

    Once the writer has a connection, later read-only ones share its mapping.
    """
    path = os.path.realpath(directory)
    with NO_FORK, _registry:
        _opening[path] += 1
        opened = list(_opened)
    try:
        for database in opened:
            if database.is_of(directory):
                database.yield_to_writer()
        yield
    finally:
        with NO_FORK, _registry:
            _opening[path] -= 1
            if not _opening[path]:
                del _opening[path]


def _map_pause(file: Path) -> mmap.mmap:
    """Map the pause byte; a byte of this process alone if the file is missing or empty."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return mmap.mmap(-1, 1)
    try:
        return mmap.mmap(descriptor, 1, access=mmap.ACCESS_READ)
    except ValueError:
        return mmap.mmap(-1, 1)
    finally:
        os.close(descriptor)
