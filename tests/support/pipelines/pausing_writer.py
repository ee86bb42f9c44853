"""Writers that wrap another one and pause, or kill, its first attempt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tailrace.hub.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.writer import Attempt, RefusedRecord, Staged, Writer, WriterSession
from tests.support.waiting import until


class PausingWriter(Writer, frozen=True):
    """Does what `inner` does. The first write creates the file `paused` in a directory, and waits
    for the file `go`."""

    inner: Writer
    path: str

    def check(self) -> str:
        return self.inner.check()

    def open(self, attempt: Attempt) -> WriterSession:
        return _Pausing(self.inner.open(attempt), Path(self.path))

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets] | None:
        return self.inner.applied(writer, stream, hub)

    def create_sink(self) -> None:
        self.inner.create_sink()

    def begin(self, writer: str, open_plan: str | None) -> None:
        self.inner.begin(writer, open_plan)

    def unify(self, writer: str, staged: Sequence[Staged]) -> Sequence[Staged | None]:
        return self.inner.unify(writer, staged)

    def publish(self, writer: str, staged: Sequence[Staged]) -> None:
        self.inner.publish(writer, staged)


class DyingWriter(PausingWriter, frozen=True):
    """Kills its process after the first write."""

    def open(self, attempt: Attempt) -> WriterSession:
        return _Dying(self.inner.open(attempt), Path(self.path))


class _Pausing:
    def __init__(self, inner: WriterSession, path: Path) -> None:
        self._inner = inner
        self._path = path

    def applied(self) -> Sequence[Offsets]:
        return self._inner.applied()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
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
    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        try:
            (self._path / "paused").touch(exist_ok=False)
        except FileExistsError:
            return self._inner.write(rows, offsets)
        self._inner.write(rows, offsets)
        os._exit(1)
