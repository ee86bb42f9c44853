"""A writer that records its rows in files, and refuses the offsets a test names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.writer import (
    Attempt,
    RefusedRecord,
    SinkRefused,
    Staged,
    Writer,
    WriterSession,
)


class RecordingWriter(Writer, frozen=True):
    """Appends a line to the file `deliveries` of a directory for each write: at least once.

    The writer refuses the offsets listed in the file `bad`: with `partial` it names them, else it
    raises an error for the whole batch. The file `begun` appears when a write has begun. While the
    file `down` exists, the sink cannot be reached; while the file `refuses` exists, it refuses the
    writer. Each write takes `delay_s`.
    """

    path: str
    partial: bool = False
    delay_s: float = 0.0

    def check(self) -> str:
        return f"a directory: {self.path}"

    def open(self, attempt: Attempt) -> WriterSession:
        if Path(self.path, "down").exists():
            raise ConnectionError("the sink is down")
        if Path(self.path, "refuses").exists():
            raise SinkRefused("wrong password")
        return _Recording(self)


class _Recording:
    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer

    def applied(self) -> Sequence[Offsets]:
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        Path(self._writer.path, "begun").touch()
        time.sleep(self._writer.delay_s)
        if Path(self._writer.path, "down").exists():
            raise ConnectionError("the sink is down")
        refused = bad(self._writer.path) & set(rows.offsets)
        if refused and not self._writer.partial:
            raise ValueError(f"the batch was refused because of {min(refused)}")
        taken = [offset for offset in rows.offsets if offset not in refused]
        if taken:
            _append(Path(self._writer.path, "deliveries"), taken)
        return [RefusedRecord(offset, f"refused {offset}") for offset in sorted(refused)]

    def finish(self) -> Sequence[Staged]:
        return ()

    def close(self) -> None:
        pass


def bad(path: str) -> set[int]:
    """Return the offsets that the writer refuses now."""
    try:
        return set(json.loads(Path(path, "bad").read_text()))
    except FileNotFoundError:
        return set()


def set_bad(path: Path, *offsets: int) -> None:
    """Let the writer refuse these offsets from now on, and no others."""
    # At once: a writer that runs never reads an empty file.
    (path / "bad.new").write_text(json.dumps(offsets))
    (path / "bad.new").replace(path / "bad")


def deliveries(path: Path) -> list[list[int]]:
    """Return the offsets written so far, by call. A line that is being written does not count."""
    try:
        whole, _, _ = (path / "deliveries").read_text().rpartition("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in whole.splitlines()]


def delivered(path: Path) -> list[int]:
    """Return the offsets written so far, in order."""
    return [offset for call in deliveries(path) for offset in call]


def _append(path: Path, offsets: list[int]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, json.dumps(offsets).encode() + b"\n")
    finally:
        os.close(descriptor)
