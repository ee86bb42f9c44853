"""The identity of an open hub: the files that this process has open are those at the hub's path.

A process keeps the files of its hub open. After the hub was removed, moved away or replaced, a
commit would go into files that no other process can find. Therefore every commit begins with a
check that the files at the path are the opened ones: the same device and inode. An open file keeps
its inode number, so no other file can get the number meanwhile.

In most cases one `stat` of the directory is the whole check. The kernel changes a directory's time
of change whenever a name in the directory is created, removed or renamed. While this time and the
directory's inode are those of the last full check, all names lead to the same files. The times of
the kernel advance in ticks, and two changes within one tick have the same time. Therefore a time is
trusted only when it is older than `SETTLED_NS`. The same `stat` shows that nobody has released the
reserve, which each append needs to know too.

A file that is overwritten in place, as ``cp backup/hub.db hub/hub.db`` does, is the same file, and
is not recognised by this check. New connections compare the hub's id too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw

from tailrace.backend.embedded.layout import RESERVE_BYTES
from tailrace.errors import BackendUnavailable, HubReplaced

SETTLED_NS: Final = 50_000_000
"""The age of a directory's time of change from which on later changes have another time."""

FILES: Final = (
    "hub.db", "hub.db-wal", "hub.db-shm", "hub.lock", "hub.commit", "hub.wake", "hub.pause",
)  # fmt: skip
"""The files that a process keeps open. Nothing but removing the hub removes them meanwhile."""

READ_FILES: Final = tuple(name for name in FILES if name not in ("hub.db-wal", "hub.db-shm"))
"""The files that a process that only reads checks. It has no connection open between two reads, and
SQLite removes the two others with the last connection."""

_Identity = tuple[int, int]


class HubIdentity:
    """The identity of a hub that this process has open. Any thread may call it."""

    __slots__ = ("_directory", "_files", "_reserve", "_settled", "has_reserve", "hub_id")

    def __init__(self, directory: Path, hub_id: str, files: Sequence[str] = FILES) -> None:
        self._directory = str(directory)
        self._reserve = str(directory / "hub.reserve")
        self.has_reserve = False
        """True if the reserve was whole at the last check."""
        self.hub_id = hub_id
        self._files = {
            name: found for name in files if (found := _identity(directory / name)) is not None
        }
        self._settled: tuple[int, int, int] | None = None

    def check(self) -> None:
        """Raise `HubReplaced` if the files at the hub's path are not the opened ones."""
        try:
            found = os.stat(self._directory)
        except OSError as error:
            raise self._not_found(error) from error
        if (found.st_ctime_ns, found.st_ino, found.st_dev) != self._settled:
            self._check_files(found)

    def replaced(self) -> HubReplaced | None:
        """Return the error if the hub was replaced, and None if not or if that is unknown."""
        try:
            self.check()
        except HubReplaced as error:
            return error
        except BackendUnavailable:
            pass
        return None

    def check_id(self, stored: str) -> None:
        """Raise `HubReplaced` if the id that `hub.db` has now is not the hub's."""
        if stored != self.hub_id:
            raise HubReplaced(self._directory, _another_hub(stored, self.hub_id))

    def _check_files(self, directory: os.stat_result) -> None:
        # Before the files: a change after their check has another time only if it is settled now.
        is_settled = time.time_ns() - directory.st_ctime_ns > SETTLED_NS
        for name, opened in self._files.items():
            path = os.path.join(self._directory, name)
            try:
                status = os.stat(path)
            except OSError as error:
                raise self._not_found(error) from error
            if (status.st_dev, status.st_ino) != opened:
                raise HubReplaced(self._directory, self._describe(name))
        self.has_reserve = _size(self._reserve) == RESERVE_BYTES
        if is_settled:
            self._settled = directory.st_ctime_ns, directory.st_ino, directory.st_dev

    def _not_found(self, error: OSError) -> BackendUnavailable:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return HubReplaced(self._directory, f"{error.filename} no longer exists")
        return BackendUnavailable(
            f"{self._directory} cannot be inspected: {error}", "nothing was written"
        )

    def _describe(self, name: str) -> str:
        """Describe the hub that is at the path now."""
        stored = read_hub_id(Path(self._directory, "hub.db"))
        if stored is None:
            return f"{self._directory}/{name} is another file now, and there is no readable hub"
        if stored != self.hub_id:
            return _another_hub(stored, self.hub_id)
        return (
            f"{self._directory}/{name} is another file now, of the same hub (id {stored}):"
            " a backup was restored, or a copy put in its place"
        )


def read_hub_id(database: Path) -> str | None:
    """Return the id of the hub in a database that this process does not have open, without writing
    anything; None if there is no hub that can be read."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"{database.as_uri()}?mode=ro&readonly_shm=1", flags=flags)
        try:
            row = connection.execute("SELECT value FROM meta WHERE name = 'hub_id'").fetchone()
        finally:
            connection.close()
    except apsw.Error:
        return None
    return None if row is None else str(row[0])


def _another_hub(stored: str, opened: str) -> str:
    return f"another hub is there now (id {stored}; this process opened {opened})"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> _Identity | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
