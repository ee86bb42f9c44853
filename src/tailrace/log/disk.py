"""The operations of a log on a disk, as a parameter, so that tests can pass a disk that fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Disk:
    """The real disk. Every method raises `OSError` as the kernel reports it."""

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`, in several system calls if needed."""
        written = os.pwrite(descriptor, data, position)
        size = memoryview(data).nbytes
        while written < size:
            rest = memoryview(data).cast("B")[written:]
            written += os.pwrite(descriptor, rest, position + written)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`; fewer only at the end of the file."""
        data = os.pread(descriptor, size, position)
        while len(data) < size:
            more = os.pread(descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self, descriptor: int) -> None:
        """Return when the file's bytes are on the device."""
        os.fdatasync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        """Return when the names in the directory are on the device."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
