"""Writers around another one whose first attempt stands still, or dies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tailrace.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import Rows
from tailrace.pipeline.writer import Attempt, Failure, Staged, Writer, WriterSession
from tests.waiting import until


class PausingWriter(Writer, frozen=True):
    """Does what `inner` does. The first attempt to write at all makes the file `paused` in a
    directory, and waits for the file `go` before it writes."""

    inner: Writer
    path: str

    def check(self) -> str:
        return self.inner.check()

    def open(self, attempt: Attempt) -> WriterSession:
        return _Pausing(self.inner.open(attempt), Path(self.path))

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets] | None:
        return self.inner.applied(writer, stream, hub)

    def begin(self, writer: str, open_plan: str | None) -> None:
        self.inner.begin(writer, open_plan)

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        self.inner.publish(writer, staged)


class DyingWriter(PausingWriter, frozen=True):
    """Its first attempt to write dies when it has written."""

    def open(self, attempt: Attempt) -> WriterSession:
        return _Dying(self.inner.open(attempt), Path(self.path))


class _Pausing:
    def __init__(self, inner: WriterSession, path: Path) -> None:
        self._inner = inner
        self._path = path

    def applied(self) -> Sequence[Offsets]:
        return self._inner.applied()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        try:
            (self._path / "paused").touch(exist_ok=False)
        except FileExistsError:
            return self._inner.write(rows, offsets)
        until((self._path / "go").exists)
        return self._inner.write(rows, offsets)

    def finish(self) -> Sequence[Staged]:
        return self._inner.finish()

    def close(self) -> None:
        self._inner.close()


class _Dying(_Pausing):
    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        try:
            (self._path / "paused").touch(exist_ok=False)
        except FileExistsError:
            return self._inner.write(rows, offsets)
        self._inner.write(rows, offsets)
        os._exit(1)
