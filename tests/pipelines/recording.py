"""A writer that notes in files what it was given, and refuses what a test tells it to refuse."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import Rows
from tailrace.pipeline.writer import Attempt, Failure, Staged, Writer, WriterSession


class RecordingWriter(Writer, frozen=True):
    """At least once, into the file `deliveries` of a directory: a line for each call of `write`.

    Offsets listed in the file `bad` are refused: with `partial` by naming them, else by an error
    for the whole batch. The file `begun` says that a write has begun. While the file `down` exists,
    the sink cannot be had. Each write takes `delay_s`.
    """

    path: str
    partial: bool = False
    delay_s: float = 0.0

    def check(self) -> str:
        return f"a directory: {self.path}"

    def open(self, attempt: Attempt) -> WriterSession:
        if Path(self.path, "down").exists():
            raise ConnectionError("the sink is down")
        return _Recording(self)


class _Recording:
    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer

    def applied(self) -> Sequence[Offsets]:
        return ()

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
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
        return [Failure(offset, f"refused {offset}") for offset in sorted(refused)]

    def finish(self) -> Sequence[Staged]:
        return ()

    def close(self) -> None:
        pass


def bad(path: str) -> set[int]:
    """The offsets that are refused now."""
    try:
        return set(json.loads(Path(path, "bad").read_text()))
    except FileNotFoundError:
        return set()


def set_bad(path: Path, *offsets: int) -> None:
    """Refuse these from now on, and no others."""
    (path / "bad").write_text(json.dumps(offsets))


def deliveries(path: Path) -> list[list[int]]:
    """What was taken so far: the offsets of each call."""
    try:
        lines = (path / "deliveries").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def delivered(path: Path) -> list[int]:
    """What was taken so far, in order."""
    return [offset for call in deliveries(path) for offset in call]


def _append(path: Path, offsets: list[int]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, json.dumps(offsets).encode() + b"\n")
    finally:
        os.close(descriptor)
