"""The files of a hub directory.

    hub.db, hub.db-wal, hub.db-shm   the database: the only thing that commits
    hub.lock     partition locks        hub.commit   the commit lock
    hub.wake     touched by commits     hub.pause    asks readers to pause
    hub.holds/   one file for each name that is held
    hub.sockets/ one socket for each process that consumes in groups
    hub.reserve  16 MiB given up on a full disk, so that what frees space can still commit
    topics/ORDERS/1.7-42/   partition 7 of storage topic 1 of ORDERS, number 42 in hub.db

A partition's directory carries its number, so a topic that is deleted and made again shares no
file with the old one.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import DiskFull, IncompatibleHub
from tailrace.message import Partition

RESERVE_BYTES = 16 * 2**20
OPENING_BYTES = 2**20
"""What opening a hub may take, SQLite's shared memory above all."""

_NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs"),
        *("lustre", "nfs", "nfs4", "smb3", "smbfs"),
    )
)
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each file of one hub is."""

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
        """The directory of a partition's segments."""
        return self.topics / partition.topic / f"{partition.storage}.{partition.number}-{number}"

    def make_directory(self) -> None:
        """Create the hub's directory, or refuse one that cannot hold a hub, saying why."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in os.scandir(self.directory)}
        except (FileExistsError, NotADirectoryError):
            raise IncompatibleHub(f"{self.directory} is a file", "a hub is a directory") from None
        if names and not any(name.startswith("hub.") for name in names):
            raise IncompatibleHub(
                f"{self.directory} is not a hub and not empty",
                "give the path of a hub, or of a directory to be made",
            )
        if "topics" in names and self.database.name not in names:
            raise IncompatibleHub(
                f"{self.directory} has segments but no hub.db, which says what they are",
                "put hub.db and hub.db-wal back; the .log files are as they were",
            )
        kind = _file_system(self.directory)
        if kind in _NETWORK_FILE_SYSTEMS:
            raise IncompatibleHub(
                f"{self.directory} lies on a network file system ({kind})",
                "locks and shared memory do not hold there: a hub needs a local disk",
            )

    def keep_reserve(self) -> None:
        """Make the reserve where it is missing; `DiskFull` where there is no room for it."""
        try:
            if os.stat(self._reserve).st_size == RESERVE_BYTES:
                return
        except FileNotFoundError:
            pass
        try:
            with self.reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            self.reserve.unlink(missing_ok=True)
            if not is_full(error):
                raise
            raise disk_full(self.directory, error) from error

    def make_room(self) -> None:
        """Give up the reserve where nothing else is left, so that the database can be opened."""
        left = os.statvfs(self.directory)
        if left.f_bavail * left.f_frsize < OPENING_BYTES:
            self.give_up_reserve()

    def give_up_reserve(self) -> None:
        """Free the reserve's room for commits that free more."""
        self.reserve.unlink(missing_ok=True)

    def listed_numbers(self) -> set[int]:
        """The numbers of the partitions that have a directory."""
        return {number for number, _ in self._partitions()}

    def remove(self, numbers: set[int]) -> None:
        """Remove the directories of partitions that are no longer in `hub.db`."""
        for number, path in self._partitions() if numbers else ():
            if number in numbers:
                shutil.rmtree(path, ignore_errors=True)

    def _partitions(self) -> Iterator[tuple[int, Path]]:
        """The directories of partitions, by their numbers; what is not ours is left alone."""
        for path in self.topics.glob("*/*-*"):
            number = path.name.rpartition("-")[2]
            if number.isdecimal():
                yield int(number), path


def is_full(error: OSError) -> bool:
    """Whether an error means that there is no room."""
    return error.errno in _NO_ROOM


def disk_full(directory: Path, error: Exception) -> DiskFull:
    """The error for a producer whose record found no room."""
    return DiskFull(
        f"no room for {directory}: {error}",
        "nothing was written",
        "free some space, or delete topics, and push again",
    )


def _file_system(directory: Path) -> str:
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"
