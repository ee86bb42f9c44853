"""The states of a writer."""

from __future__ import annotations

from enum import StrEnum


class WriterStatus(StrEnum):
    """What a writer is doing. `DONE` is never stored: a report shows it after a run with `once`."""

    RUNNING = "running"
    RESUMING = "resuming one at a time"
    WAITING = "waiting"
    FAILED = "failed"
    STOPPED = "stopped"
    DONE = "done"


class WaitsFor(StrEnum):
    """What a writer in the state `WAITING` waits for."""

    SINK = "its sink"
    EXECUTORS = "executors of Spark"
