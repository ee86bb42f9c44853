"""What a run reports to people and programs: its progress, and its outcome at the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tailrace.pipeline.writer_status import WaitsFor, WriterStatus


class RunOutcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    STOPPED = "stopped"
    UNFINISHED = "unfinished"
    WAITING = "waiting"
    FAILED = "failed"

    @property
    def sentence(self) -> str:
        """The meaning of the outcome."""
        return _SENTENCES[self]


_SENTENCES = {
    RunOutcome.DONE: "all records were delivered",
    RunOutcome.STOPPED: "stopped; the batches in flight were finished",
    RunOutcome.UNFINISHED: (
        "stopped; the batches in flight were not finished and will be delivered again"
    ),
    RunOutcome.WAITING: ("stopped while a writer waited; the next start delivers its records"),
    RunOutcome.FAILED: "the reader or a writer failed",
}


@dataclass(frozen=True, slots=True)
class WriterReport:
    """A writer at one time of a run.

    `name` is the full name, ``lake/crm``. `rows` and `parked` count the rows delivered and the
    records parked in this run. `lag` is the number of records that the writer has not acknowledged.
    `position` and `error` describe a failure. In a run with `once`, the state of a writer that has
    delivered everything is `WriterStatus.DONE`. A writer that waits, waits for `waits_for` since
    `since`, because of `error`, and tries again at `next_try`.
    """

    name: str
    state: WriterStatus
    rows: int
    rows_per_second: float
    lag: int
    parked: int
    position: str | None
    error: str | None
    since: datetime | None = None
    next_try: datetime | None = None
    waits_for: WaitsFor | None = None


def format_wait(since: datetime | None, next_try: datetime | None, reason: str | None) -> str:
    """Return since when a writer waits for its sink, the time of its next try, and the reason."""
    began = "" if since is None else f"since {since:%H:%M:%S}Z, "
    tries = "now" if next_try is None else f"{next_try:%H:%M:%S}Z"
    return f"{began}next try {tries}: {reason}"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run at one time, `seconds` after its start.

    `starting` is the part that the run is starting, None once the writers run. `rows_read` and
    `unreadable` count the rows read and the lines that could not be read in this run. `waiting` is
    why the reader has nothing to read, such as no file that matches; None if it has. `blocked_by`
    is the writer that the reader waits for, if it does. `stopping` is True once the run was
    asked to stop, by a signal or `Pipeline.stop`. `follows` is the source that the pipeline
    follows, if it reads none itself.
    """

    pipeline: str
    seconds: float
    starting: str | None
    rows_read: int
    unreadable: int
    waiting: str | None
    blocked_by: str | None
    stopping: bool
    writers: tuple[WriterReport, ...]
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run after its end: what was read and what was written, in `seconds`.

    `rows_read` and `unreadable` count the rows read and the lines that could not be read in this
    run; an unreadable line is a dead letter of the pipeline. `waiting` is why the reader had
    nothing to read. `failures` has a line for each failure, `outages` one for each sink that a
    writer waited for at the end. `dead_letters` counts all pending dead letters of the pipeline.
    `spark_log` is the path of Spark's log, None without Spark. `losses` has a line for each writer
    that lost records, because the commit log was deleted before the run. `follows` is the source
    that the pipeline follows, if it reads none itself.
    """

    pipeline: str
    outcome: RunOutcome
    seconds: float
    rows_read: int
    unreadable: int
    waiting: str | None
    writers: tuple[WriterReport, ...]
    failures: tuple[str, ...]
    outages: tuple[str, ...]
    dead_letters: int
    spark_log: str | None
    losses: tuple[str, ...] = ()
    follows: str | None = None

    def writer(self, name: str) -> WriterReport:
        """Return the report of a writer by its name in the pipeline, ``crm``, or its full name.

        `KeyError` if the pipeline has no such writer.
        """
        for each in self.writers:
            if name in (each.name, each.name.partition("/")[2]):
                return each
        raise KeyError(name)
