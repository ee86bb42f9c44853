"""The files of a hub directory.

    hub.db, hub.db-wal, hub.db-shm   the database: the only file that commits
    hub.lock     partition locks        hub.commit   the commit lock
    hub.wake     touched by commits     hub.pause    asks readers to pause
    hub.holds/   one file for each name that is held
    hub.sockets/ one socket for each process that consumes in groups
    hub.reserve  16 MiB, released on a full disk so that deletions can still commit
    topics/ORDERS/1.7-42/   partition 7 of storage topic 1 of ORDERS, number 42 in hub.db

A partition's directory name has its number, so a topic that is deleted and created again shares no
file with the old one.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.backend.capabilities import DirectoryUse
from tailrace.errors import DiskFull, IncompatibleHub, UnknownHub
from tailrace.log.sharing import make_directory, open_or_create
from tailrace.message import Partition

RESERVE_BYTES = 16 * 2**20
OPENING_BYTES = 2**20
"""The disk space that opening a hub may need, above all for SQLite's shared memory."""

_NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs"),
        *("lustre", "nfs", "nfs4", "smb3", "smbfs"),
    )
)
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


@dataclass(frozen=True, slots=True)
class Layout:
    """The path of each file of one hub."""

    directory: Path
    _reserve: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reserve", str(self.directory / "hub.reserve"))

    @property
    def database(self) -> Path:
        """`hub.db`. Nothing but SQLite may open it: closing any descriptor of it would drop
        SQLite's locks."""
        return self.directory / "hub.db"

    @property
    def partition_locks(self) -> Path:
        """`hub.lock`."""
        return self.directory / "hub.lock"

    @property
    def commit_lock(self) -> Path:
        """`hub.commit`."""
        return self.directory / "hub.commit"

    @property
    def wake(self) -> Path:
        """`hub.wake`."""
        return self.directory / "hub.wake"

    @property
    def pause(self) -> Path:
        """`hub.pause`."""
        return self.directory / "hub.pause"

    @property
    def holds(self) -> Path:
        """`hub.holds`."""
        return self.directory / "hub.holds"

    @property
    def sockets(self) -> Path:
        """`hub.sockets`."""
        return self.directory / "hub.sockets"

    @property
    def reserve(self) -> Path:
        """`hub.reserve`."""
        return Path(self._reserve)

    @property
    def topics(self) -> Path:
        """The directory of all partitions."""
        return self.directory / "topics"

    def partition(self, partition: Partition, number: int) -> Path:
        """Return the directory of a partition's segments."""
        return self.topics / partition.topic / f"{partition.storage}.{partition.number}-{number}"

    def make_directory(self) -> None:
        """Create the hub's directory; `IncompatibleHub` if it cannot hold a hub."""
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            make_directory(self.directory)
        except (FileExistsError, NotADirectoryError):
            pass  # A file, which the next step refuses.
        self._check_may_hold_hub()
        self._check_file_system()

    def _check_may_hold_hub(self) -> None:
        """Raise `IncompatibleHub` if no hub can be created in the directory, nor is one there."""
        try:
            names = {entry.name for entry in os.scandir(self.directory)}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise IncompatibleHub(
                f"{self.directory} is a file, and a hub is a directory",
                "give the path of a hub, or of a new directory",
            ) from None
        if names and not any(name.startswith("hub.") for name in names):
            raise IncompatibleHub(
                f"{self.directory} is not a hub and not empty",
                "give the path of a hub, or of a new directory",
            )
        if "topics" in names and self.database.name not in names:
            raise IncompatibleHub(
                f"{self.directory} has segments but no hub.db, which lists them",
                "restore hub.db and hub.db-wal; the .log files are unchanged",
            )

    def check_existing(self) -> None:
        """Raise `UnknownHub` if there is no hub in the directory, and `IncompatibleHub` if it
        cannot be used there. Changes nothing."""
        try:
            self.database.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._check_may_hold_hub()
            raise UnknownHub(str(self.directory)) from None
        self._check_file_system()

    def _check_file_system(self) -> None:
        kind = _file_system(self.directory)
        if kind in _NETWORK_FILE_SYSTEMS:
            raise IncompatibleHub(
                f"{self.directory} is on a network file system ({kind})",
                "locks and shared memory are not reliable there: put the hub on a local disk",
            )

    def make_partition_directory(self, directory: Path) -> None:
        """Create the directory of a partition's segments in the hub's directory, which exists."""
        for each in (self.topics, directory.parent, directory):
            make_directory(each)

    def keep_reserve(self) -> None:
        """Create the reserve if it is missing; `DiskFull` if there is no space for it."""
        try:
            if os.stat(self._reserve).st_size == RESERVE_BYTES:
                return
        except FileNotFoundError:
            pass
        try:
            descriptor = open_or_create(self.reserve)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.reserve.unlink(missing_ok=True)
            if not is_full(error):
                raise
            raise disk_full(self.directory, error) from error

    def release_reserve_if_full(self) -> None:
        """Release the reserve if the disk is full, so that the database can be opened."""
        left = os.statvfs(self.directory)
        if left.f_bavail * left.f_frsize < OPENING_BYTES:
            self.release_reserve()

    def release_reserve(self) -> None:
        """Remove the reserve, so that commits that free space have room."""
        self.reserve.unlink(missing_ok=True)

    def use(self) -> DirectoryUse:
        """Measure the files beside the segments, and the disk."""
        free_bytes, percent = disk_usage(self.directory)
        return DirectoryUse(
            database_bytes=file_bytes(self.database),
            wal_bytes=file_bytes(self.database.with_name("hub.db-wal")),
            has_reserve=self.reserve.exists(),
            disk_free_bytes=free_bytes,
            disk_percent=percent,
        )

    def listed_numbers(self) -> set[int]:
        """Return the numbers of the partitions that have a directory."""
        return {number for number, _ in self._partitions()}

    def remove(self, numbers: set[int]) -> None:
        """Remove the directories of partitions that are no longer in `hub.db`."""
        for number, path in self._partitions() if numbers else ():
            if number in numbers:
                shutil.rmtree(path, ignore_errors=True)

    def _partitions(self) -> Iterator[tuple[int, Path]]:
        """Yield the directories of partitions with their numbers; other files are ignored."""
        for path in self.topics.glob("*/*-*"):
            number = path.name.rpartition("-")[2]
            if number.isdecimal():
                yield int(number), path


def disk_usage(directory: Path) -> tuple[int, int]:
    """Return the free bytes of a directory's disk, and how full the disk is in percent."""
    usage = shutil.disk_usage(directory)
    return usage.free, round(100 * usage.used / ((usage.used + usage.free) or 1))


def file_bytes(path: Path) -> int:
    """Return the length of a file, 0 if there is none. Does not open it: `hub.db` must not be."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def is_full(error: OSError) -> bool:
    """True if the error means that the disk is full."""
    return error.errno in _NO_ROOM


def disk_full(directory: Path, error: Exception) -> DiskFull:
    """Return the error of a write that found no disk space."""
    return DiskFull(
        f"no disk space for {directory}: {error}",
        "nothing was written",
        "free some space or delete topics, then retry",
    )


def _file_system(directory: Path) -> str:
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"
