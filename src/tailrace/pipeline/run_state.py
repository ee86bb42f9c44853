"""A run as it is now, as its monitor reads it."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.pipeline.writing.writer_ledger import WriterState


@dataclass(frozen=True, slots=True)
class RunningWriter:
    """A writer of a run. `lag` is the number of records left to deliver."""

    name: str
    state: WriterState
    lag: int


@dataclass(frozen=True, slots=True)
class RunState:
    """A run as it is now.

    `waiting` is why the reader has nothing to read. `blocked_by` is the writer that the reader
    waits for. `stopping` is True once the run was asked to stop; a failure that ends it is not
    that.
    """

    rows_read: int
    bytes_read: int
    bad_read: int
    reading: bool
    waiting: str | None
    blocked_by: str | None
    stopping: bool
    writers: tuple[RunningWriter, ...]
