"""The checks of a source for `tailrace status`: problems, and notes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.problem import Problem
from tailrace.operations.source.describe import SourceView
from tailrace.operations.source.health import (
    SourceState,
    judge_source,
    left_text,
    silence_text,
    silent_tasks,
)
from tailrace.pipeline.catalog import find

RESTART_MAX: Final = timedelta(seconds=60)
"""How long a source that was stopped cleanly may have something left to read: a restart."""


class CheckedSource(NamedTuple):
    """What the checks of a source found."""

    problems: list[Problem]
    notes: list[Problem]


def check_source(hub: Hub, view: SourceView, now: datetime) -> CheckedSource:
    """Check a source. That of a pipeline is checked with the pipeline, but for its tasks."""
    problems = [*_silent(hub, view)]
    notes = [*_failed_tasks(view, now)]
    if not view.pipeline or find(hub.backend.store, view.name) is None:
        problems += [*_waiting(view), *_letters(view)]
        if stopped := _stopped(hub, view, now):
            (notes if _may_restart(hub, view, now) else problems).append(stopped)
        elif follows := _stopped_following(view, now):
            notes.append(follows)
    return CheckedSource(problems, notes)


def _silent(hub: Hub, view: SourceView) -> Iterator[Problem]:
    for each in silent_tasks(hub, view):
        yield _problem(view, silence_text(each), f"tailrace source status {view.name}")


def _failed_tasks(view: SourceView, now: datetime) -> Iterator[Problem]:
    """Yield the last task that failed while others read on."""
    failed = [each for each in view.ended if each.error is not None]
    if failed and view.running:
        last = failed[-1]
        since = "" if last.ended is None else f" {_time(last.ended, now)}"
        what = f"a task FAILED{since}, others continue: {last.process}"
        yield _problem(view, what, f"tailrace explain {view.name}")


def _waiting(view: SourceView) -> Iterator[Problem]:
    if view.reader_waits is not None:
        what = ", ".join(view.reader_waits.split(" · ")[:2])
        yield _problem(view, what, "check the settings of the reader; it waits for the first data")


def _letters(view: SourceView) -> Iterator[Problem]:
    if view.unreadable:
        letters = format_amount(view.unreadable, "pending dead letter")
        yield _problem(view, letters, f"tailrace dlq {view.name} list --by error")


def _stopped(hub: Hub, view: SourceView, now: datetime) -> Problem | None:
    """Return that no task runs, although something is left to read."""
    health = judge_source(hub, view)
    since = "" if health.since is None else f" {_time(health.since, now)}"
    match health.state:
        case SourceState.FAILED:
            return _problem(view, f"FAILED{since}", f"tailrace explain {view.name}")
        case SourceState.KILLED:
            killed = view.killed[-1]
            began = _time(killed.started, now)
            what = f"no task runs, that of {began} was killed, {left_text(view)}"
            return _problem(view, what, view.run_command)
        case SourceState.STOPPED:
            what = f"no task runs{since and f' since{since}'}, {left_text(view)}"
            return _problem(view, what, view.run_command)
    return None


def _may_restart(hub: Hub, view: SourceView, now: datetime) -> bool:
    """True for a source that was stopped cleanly just now, and may be about to start again."""
    health = judge_source(hub, view)
    is_clean = health.state is SourceState.STOPPED and health.since is not None
    return is_clean and health.since is not None and now - health.since < RESTART_MAX


def _stopped_following(view: SourceView, now: datetime) -> Problem | None:
    """Return that no task runs, although the last was meant to run until it is stopped."""
    last = view.ended[-1] if view.ended else None
    if view.running or view.alone or last is None or not last.follows or not view.unfinished:
        return None
    since = "" if last.ended is None else f" since {_time(last.ended, now)}"
    return _problem(view, f"no task runs{since}, caught up", view.run_command)


def _problem(view: SourceView, what: str, remedy: str) -> Problem:
    return Problem(f"source {view.name}", what, remedy)


def _time(time: datetime, now: datetime) -> str:
    """Return a time of day, with its date if it is not of the last 24 hours."""
    return f"{time:%H:%M}" if now - time < timedelta(days=1) else f"{time:%Y-%m-%d %H:%M}"
