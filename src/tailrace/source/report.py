"""The progress of a source, and the report of a run of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SourceOutcome(StrEnum):
    """How a run of a source ended."""

    DONE = "done"
    """Everything that was there was read."""
    STOPPED = "stopped"


class NamespaceState(StrEnum):
    """What is left of a namespace."""

    COPYING = "copying"
    """Its copy is not done."""
    WAITING = "waiting"
    """Everything that is left has to wait until other splits are finished."""
    FOLLOWING = "following"
    FINISHED = "finished"
    """All its splits are finished: nothing more can come."""


@dataclass(frozen=True, slots=True)
class NamespaceProgress:
    """A namespace of a source, as all tasks have read it.

    While it is copied, `rows` counts the rows that were read and `rows_expected` is about how many
    the copy has. Afterwards both are the rows of the copy. For a namespace without a copy of a
    known size, `rows_expected` is None and `rows` counts those of the splits that still exist.

    `rows_per_second` is known from the second look on. `lag` is about how many rows are there and
    were not read, as of the last batches; None if no reader can tell.
    """

    namespace: str
    state: NamespaceState
    rows: int
    rows_expected: int | None
    rows_per_second: float | None = None
    lag: int | None = None

    @property
    def copying(self) -> bool:
        """True while the namespace is copied."""
        return self.state is NamespaceState.COPYING


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A run of a source as it is now: what this task has read, and what all of them have.

    `units` counts the units that this task owns, `tasks` the tasks of the source. `caught_up` is
    True if this task found nothing to read when it looked last. `waiting` is why the reader has
    nothing to read, such as no file that matches; `retrying` is the error after which the task
    tries again. `stopping` is True once the run was asked to stop.
    """

    source: str
    task: str
    leads: bool
    tasks: int
    units: int
    rows: int
    bad: int
    seconds: float
    rows_per_second: float
    caught_up: bool
    namespaces: tuple[NamespaceProgress, ...] = ()
    waiting: str | None = None
    retrying: str | None = None
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A run that has ended: the rows and dead letters that this task has stored.

    `retrying` is the error after which the task was about to try again when it was stopped.
    """

    source: str
    task: str
    outcome: SourceOutcome
    rows: int
    bad: int
    seconds: float
    retrying: str | None = None
