"""The files that a glob finds at an instant, and their bytes."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from isal import isal_zlib

from tailrace.errors import Error

_GZIP: Final = 31
"""What zlib calls a stream with gzip's header."""

_READ_BYTES: Final = 256 << 10


class FileInfo(NamedTuple):
    """A file as it was when it was looked at."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        """What the system knows it by, whatever its name is."""
        return self.device, self.inode


class Listing:
    """The files that a glob finds at one instant, each once, by path and by identity."""

    def __init__(self, files: Iterable[FileInfo]) -> None:
        self._by_path: dict[str, FileInfo] = {}
        self._by_identity: dict[tuple[int, int], FileInfo] = {}
        for file in files:
            # A second name of the same file is not another file.
            if self._by_identity.setdefault(file.identity, file) is file:
                self._by_path[file.path] = file

    def __iter__(self) -> Iterator[FileInfo]:
        return iter(self._by_path.values())

    def __len__(self) -> int:
        return len(self._by_path)

    def at(self, path: str) -> FileInfo | None:
        """The file of that path."""
        return self._by_path.get(path)

    def find(self, device: int, inode: int) -> FileInfo | None:
        """The file of that identity."""
        return self._by_identity.get((device, inode))


def list_files(pattern: str) -> Listing:
    """The regular files that a glob matches now, in the order of their paths."""
    paths = sorted(glob.glob(pattern, recursive=True, include_hidden=False))
    return Listing(info for path in paths if (info := _info(path)) is not None)


def _info(path: str) -> FileInfo | None:
    try:
        path.encode()
        found = os.stat(path)
    except UnicodeEncodeError:
        raise Error(f"the name of the file {path!r} is not UTF-8", "rename it") from None
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileInfo(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def find_in_directory(path: str, inode: int) -> str | None:
    """The file of that inode that lies beside a path, whatever its name is."""
    directory = os.path.dirname(path)
    try:
        with os.scandir(directory or ".") as entries:
            for entry in entries:
                if entry.inode() == inode and entry.is_file():
                    return os.path.join(directory, entry.name)
    except FileNotFoundError:
        pass
    return None


class Unreadable(Exception):
    """What a file holds is not what its format says."""


class OpenFile:
    """An open file: it stays readable when it is renamed or deleted."""

    seekable = True
    is_whole = True
    """Whether what was read so far does not end in the middle of a compressed part."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity = self.info(path).identity

    def info(self, path: str) -> FileInfo:
        """The file as it is now."""
        found = os.fstat(self.descriptor)
        return FileInfo(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @property
    def linked(self) -> bool:
        """Whether it still has a name."""
        return os.fstat(self.descriptor).st_nlink > 0

    @property
    def changed_ns(self) -> int:
        """When it, or its names, last changed."""
        return os.fstat(self.descriptor).st_ctime_ns

    def read(self, offset: int, size: int, limit: int | None = None) -> bytes:
        """`size` bytes from `offset` on; fewer only where the file ends, or its first `limit`
        bytes do."""
        if limit is not None:
            size = min(size, limit - offset)
        data = b""
        while len(data) < size:
            more = os.pread(self.descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data = data + more if data else more
        return data

    def is_cut(self, offset: int) -> bool:
        """Whether it is shorter than what was read of it, up to `offset`."""
        return os.fstat(self.descriptor).st_size < offset

    def close(self) -> None:
        """Close it."""
        os.close(self.descriptor)


class GzipFile(OpenFile):
    """An open file of gzip members, read as what they hold. `limit` counts compressed bytes."""

    seekable = False

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._rewind()

    def _rewind(self) -> None:
        self._inflate = isal_zlib.decompressobj(_GZIP)
        self._pending = b""
        self._compressed = 0
        self._start = 0
        self._held = bytearray()
        self.is_whole = True

    def read(self, offset: int, size: int, limit: int | None = None) -> bytes:
        """`size` decompressed bytes from `offset` on, fewer where the compressed ones end.

        To go back means to decompress from the beginning.
        """
        if offset < self._start:
            self._rewind()
        self._drop(offset)
        while self._start + len(self._held) < offset + size and self._fill(limit):
            self._drop(offset)
        return bytes(self._held[:size]) if self._start == offset else b""

    def is_cut(self, offset: int) -> bool:
        """Whether it is shorter than what was read of it by this object."""
        return super().is_cut(self._compressed)

    def _drop(self, offset: int) -> None:
        """Let go of what lies before `offset`."""
        count = min(offset - self._start, len(self._held))
        del self._held[:count]
        self._start += count

    def _fill(self, limit: int | None) -> bool:
        """Decompress some more; False when there is no more at the moment."""
        if not self._pending:
            self._pending = super().read(self._compressed, _READ_BYTES, limit)
            self._compressed += len(self._pending)
        had = bool(self._pending)
        if had:
            self.is_whole = False
        try:
            data = self._inflate.decompress(self._pending, _READ_BYTES)
        except isal_zlib.error as error:  # type: ignore[misc]  # it is an exception
            raise Unreadable(f"it is not gzip: {error}") from error
        self._pending = self._inflate.unconsumed_tail
        if self._inflate.eof:
            # Zeros may fill up the last block of a tape.
            self._pending = self._inflate.unused_data.lstrip(b"\0")
            self._inflate = isal_zlib.decompressobj(_GZIP)
            self.is_whole = True
        self._held += data
        return had or bool(data)
