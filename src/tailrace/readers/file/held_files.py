"""The files that the splits of a reader hold open, within a limit of descriptors."""

from __future__ import annotations

import resource
from typing import Protocol

from tailrace.readers.file.files import OpenFile


class FileHolder(Protocol):
    """An object that holds a file open and can open it again."""

    def release(self) -> None:
        """Close the file, and unregister."""


class HeldFiles:
    """The files that are held open: at most a quarter of the descriptors of the process, or 16.

    A file can be *reserved*: it is held open until its split reads it, because it may lose its name
    before that.
    """

    def __init__(self) -> None:
        self._reserved: dict[tuple[int, int], _ReservedFile] = {}
        self._holders: dict[FileHolder, tuple[int, int]] = {}
        self._holders_max = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def register(self, holder: FileHolder, file: OpenFile) -> None:
        """Record that a file is held open and was just read.

        Above the limit, the holder that has not read for longest must release its file.
        """
        self._holders.pop(holder, None)
        self._holders[holder] = file.identity
        if len(self._holders) > self._holders_max:
            next(iter(self._holders)).release()

    def unregister(self, holder: FileHolder) -> None:
        """Record that a holder closed its file."""
        self._holders.pop(holder, None)

    def identities(self) -> set[tuple[int, int]]:
        """Return the identities of all files that are held open."""
        return set(self._holders.values())

    def reserve(self, opened: OpenFile) -> None:
        """Hold an open file until it is claimed; close it if its identity is reserved already."""
        if opened.identity in self._reserved:
            opened.close()
            return
        reserved = self._reserved[opened.identity] = _ReservedFile(self, opened)
        self.register(reserved, opened)

    def reserved(self, device: int, inode: int) -> OpenFile | None:
        """Return the reserved file with that identity. It stays reserved."""
        reserved = self._reserved.get((device, inode))
        return None if reserved is None else reserved.file

    def claim(self, identity: tuple[int, int]) -> OpenFile | None:
        """Return the reserved file with that identity; the caller must close it from now on."""
        reserved = self._reserved.pop(identity, None)
        if reserved is None:
            return None
        self.unregister(reserved)
        return reserved.file

    def reserved_identities(self) -> set[tuple[int, int]]:
        """Return the identities of the reserved files."""
        return set(self._reserved)

    def release_reserved(self) -> None:
        """Close all reserved files."""
        for reserved in list(self._reserved.values()):
            reserved.release()

    def close(self) -> None:
        """Close all files."""
        for holder in list(self._holders):
            holder.release()


class _ReservedFile:
    """The holder of a reserved file."""

    def __init__(self, held_files: HeldFiles, file: OpenFile) -> None:
        self._held_files = held_files
        self.file = file

    def release(self) -> None:
        self._held_files.claim(self.file.identity)
        self.file.close()
