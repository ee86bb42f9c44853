"""The progress of a source, and the report of a run of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from tailrace.source.split_state import StoredSplits


class SourceOutcome(StrEnum):
    """How a run of a source ended."""

    DONE = "done"
    """Everything that was there was read."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class NamespaceProgress:
    """The rows of a namespace that were read, by all tasks.

    `rows_expected` is about how many rows its copy has; None if that is not known. `copying` is
    True until its copy is done.
    """

    namespace: str
    rows: int
    rows_expected: int | None
    copying: bool


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A run of a source as it is now: what this task has read, and what all of them have.

    `units` counts the units that this task owns, `tasks` the tasks of the source. `caught_up` is
    True if this task found nothing to read when it looked last.
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


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A run that has ended: the rows and dead letters that this task has stored."""

    source: str
    task: str
    outcome: SourceOutcome
    rows: int
    bad: int
    seconds: float


def namespace_progress(stored: StoredSplits) -> tuple[NamespaceProgress, ...]:
    """Return the progress of each namespace that splits name, by name."""
    rows: defaultdict[str, int] = defaultdict(int)
    expected: dict[str, int | None] = {}
    copying: defaultdict[str, bool] = defaultdict(bool)
    splits = {each: next(iter(reports.values())) for each, reports in stored.reports.items()}
    splits |= {each: state.split for each, state in stored.states.items()}
    for split_id, split in splits.items():
        name = split.namespace
        if not name:
            continue
        state = stored.states.get(split_id)
        rows[name] += 0 if state is None else state.rows
        if split.rows_expected is not None:
            expected[name] = (expected.get(name) or 0) + split.rows_expected
            copying[name] |= state is None or not state.finished
    return tuple(
        NamespaceProgress(name, rows[name], expected.get(name), copying[name])
        for name in sorted(rows)
    )
