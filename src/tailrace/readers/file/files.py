"""The files that a glob matches, and their bytes, decompressed."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from isal import isal_zlib

from tailrace.errors import Error

_GZIP: Final = 31
"""The window size by which zlib selects a stream with a gzip header."""

_READ_BYTES: Final = 256 << 10


class FileInfo(NamedTuple):
    """The state of a file at the time it was listed."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode of the file, which a rename does not change."""
        return self.device, self.inode


class Listing:
    """The files that a glob matched at one time, each file once, by path and by identity."""

    def __init__(self, files: Iterable[FileInfo]) -> None:
        self._by_path: dict[str, FileInfo] = {}
        self._by_identity: dict[tuple[int, int], FileInfo] = {}
        for file in files:
            # A hard link to a file that is listed already is not another file.
            if self._by_identity.setdefault(file.identity, file) is file:
                self._by_path[file.path] = file

    def __iter__(self) -> Iterator[FileInfo]:
        return iter(self._by_path.values())

    def __len__(self) -> int:
        return len(self._by_path)

    def at(self, path: str) -> FileInfo | None:
        """Return the file with that path."""
        return self._by_path.get(path)

    def find(self, device: int, inode: int) -> FileInfo | None:
        """Return the file with that identity."""
        return self._by_identity.get((device, inode))


def list_files(pattern: str) -> Listing:
    """Return the regular files that a glob matches now, sorted by path."""
    paths = sorted(glob.glob(pattern, recursive=True, include_hidden=False))
    return Listing(info for path in paths if (info := _info(path)) is not None)


def _info(path: str) -> FileInfo | None:
    try:
        path.encode()
        found = os.stat(path)
    except UnicodeEncodeError:
        raise Error(f"the file name {path!r} is not valid UTF-8", "rename the file") from None
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileInfo(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def find_in_directory(path: str, inode: int) -> str | None:
    """Return the path of the file with that inode in the directory of `path`."""
    directory = os.path.dirname(path)
    try:
        with os.scandir(directory or ".") as entries:
            for entry in entries:
                if entry.inode() == inode and entry.is_file():
                    return os.path.join(directory, entry.name)
    except FileNotFoundError:
        pass
    return None


class UnreadableFile(Exception):
    """The content of a file does not match its format or compression."""


class OpenFile:
    """An open file. It stays readable after it is renamed or deleted."""

    seekable = True
    is_whole = True
    """False if the bytes read so far end inside a gzip member."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity = self.info(path).identity

    def info(self, path: str) -> FileInfo:
        """Return the present state of the file, under the given path."""
        found = os.fstat(self.descriptor)
        return FileInfo(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @property
    def linked(self) -> bool:
        """True if the file still has a name."""
        return os.fstat(self.descriptor).st_nlink > 0

    @property
    def changed_ns(self) -> int:
        """When the file or one of its names last changed."""
        return os.fstat(self.descriptor).st_ctime_ns

    def read(self, offset: int, size: int, limit: int | None = None) -> bytes:
        """Return `size` bytes from `offset` on.

        Returns fewer bytes only at the end of the file, or of its first `limit` bytes.
        """
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
        """True if the file is shorter than `offset`, up to which it was read."""
        return os.fstat(self.descriptor).st_size < offset

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


class GzipFile(OpenFile):
    """An open file of gzip members, read as their decompressed bytes.

    A `limit` counts compressed bytes.
    """

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
        """Return `size` decompressed bytes from `offset` on; fewer at the end of the file.

        Reading backwards decompresses the file from its start.
        """
        if offset < self._start:
            self._rewind()
        self._drop(offset)
        while self._start + len(self._held) < offset + size and self._fill(limit):
            self._drop(offset)
        return bytes(self._held[:size]) if self._start == offset else b""

    def is_cut(self, offset: int) -> bool:
        """True if the file is shorter than the compressed bytes that this object has read."""
        return super().is_cut(self._compressed)

    def _drop(self, offset: int) -> None:
        """Discard the decompressed bytes before `offset`."""
        count = min(offset - self._start, len(self._held))
        del self._held[:count]
        self._start += count

    def _fill(self, limit: int | None) -> bool:
        """Decompress more bytes; return False if there are none at present."""
        if not self._pending:
            self._pending = super().read(self._compressed, _READ_BYTES, limit)
            self._compressed += len(self._pending)
        had = bool(self._pending)
        if had:
            self.is_whole = False
        try:
            data = self._inflate.decompress(self._pending, _READ_BYTES)
        except isal_zlib.error as error:  # type: ignore[misc]  # it is an exception
            raise UnreadableFile(f"it is not gzip: {error}") from error
        self._pending = self._inflate.unconsumed_tail
        if self._inflate.eof:
            # Tape archives pad the last block with zeros.
            self._pending = self._inflate.unused_data.lstrip(b"\0")
            self._inflate = isal_zlib.decompressobj(_GZIP)
            self.is_whole = True
        self._held += data
        return had or bool(data)
