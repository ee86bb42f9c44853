"""A `parquet` writer whose process dies at an operation on its files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa

from tailrace.writers.files.destination import Destination
from tailrace.writers.files.parquet import ParquetWriter


class Died(BaseException):
    """The process died here. Nothing of ours catches it."""


def raise_died() -> None:
    """Die as far as the code under test can tell: nothing after this point runs."""
    raise Died


def kill_process() -> None:
    """Die by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


class Point(NamedTuple):
    """An operation on a file whose name contains `name`: the first such one, the second, …"""

    operation: str
    name: str
    number: int = 1


@dataclass
class Fuse:
    """Calls `die` at an operation: after `left` others, or before the one at a point."""

    left: int | None = None
    point: Point | None = None
    die: Callable[[], None] = raise_died
    operations: int = 0

    def burn(self, operation: str, name: str) -> None:
        """Count an operation."""
        self.operations += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.die()
        if self.point is not None and self.point.operation == operation and self.point.name in name:
            self.point = self.point._replace(number=self.point.number - 1)
            if not self.point.number:
                self.die()


class DyingDestination(Destination):
    """Dies before an operation; a file that is being created then exists and is empty."""

    def __init__(self, path: str, fuse: Fuse) -> None:
        super().__init__(path)
        self._fuse = fuse

    def create(self, name: str) -> pa.NativeFile:
        stream = super().create(name)
        try:
            self._fuse.burn("create", name)
        except Died:
            stream.close()
            raise
        return stream

    def move(self, name: str, new_name: str) -> None:
        self._fuse.burn("move", new_name)
        super().move(name, new_name)

    def sync(self, names: Iterable[str]) -> None:
        # A process that dies loses nothing that it has written, so nothing is synced here.
        self._fuse.burn("sync", ", ".join(names))

    def remove(self, name: str) -> None:
        self._fuse.burn("remove", name)
        super().remove(name)

    def remove_directory(self, name: str) -> None:
        self._fuse.burn("remove", name)
        super().remove_directory(name)


class DyingParquet(ParquetWriter, frozen=True):
    """Writes Parquet files until the `fuse` of this process has burnt down."""

    fuse: ClassVar[Fuse] = Fuse()

    def destination(self) -> Destination:
        return DyingDestination(self.path, self.fuse)
