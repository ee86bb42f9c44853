"""The state of a source as a whole, and since when."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.health import Health
from tailrace.operations.source.describe import SourceTask, SourceView


class SourceState(StrEnum):
    """What a source does. The first that applies is its state."""

    READ_ALONE = "READ ALONE"
    """A pipeline reads it by itself."""
    SILENT = "SILENT"
    """A task owns units and sends no heartbeat."""
    WAITING = "WAITING"
    """The readers of its tasks find nothing to read."""
    COPYING = "COPYING"
    FOLLOWING = "FOLLOWING"
    FAILED = "FAILED"
    """No task runs, because of an error."""
    KILLED = "KILLED"
    """No task runs, the last one was killed, and something is left to read."""
    STOPPED = "STOPPED"
    """No task runs, and something is left to read."""
    IDLE = "IDLE"
    """No task runs, and everything was read that was there."""


_WORKS: Final = frozenset(
    {SourceState.READ_ALONE, SourceState.COPYING, SourceState.FOLLOWING, SourceState.IDLE}
)


def is_well(state: SourceState) -> bool:
    """True if nothing has to be done."""
    return state in _WORKS


def judge_source(hub: Hub, view: SourceView) -> Health[SourceState]:
    """Return the state of a source."""
    if view.running:
        return _judge_running(hub, view)
    if view.alone:
        return Health(SourceState.READ_ALONE, f"pipeline {view.name} reads it by itself")
    failed = [each for each in view.ended if each.error is not None]
    last = view.ended[-1] if view.ended else None
    stopped = None if last is None else last.ended
    if failed:
        why = f"{failed[-1].process}: {failed[-1].error}"
        return Health(SourceState.FAILED, why, failed[-1].ended)
    if view.unread and view.killed:
        why = f"{view.killed[-1].process} was killed, {left_text(view)}"
        return Health(SourceState.KILLED, why)
    if view.unread:
        return Health(SourceState.STOPPED, f"no task runs, {left_text(view)}", stopped)
    return Health(SourceState.IDLE, "no task runs, everything was read", stopped)


def _judge_running(hub: Hub, view: SourceView) -> Health[SourceState]:
    tasks = format_amount(len(view.running), "task")
    if silent := silent_tasks(hub, view):
        longest = max(silent, key=lambda each: each.silent_s)
        return Health(SourceState.SILENT, silence_text(longest))
    if view.reader_waits is not None:
        return Health(SourceState.WAITING, view.reader_waits)
    if view.copying or not view.begun:
        return Health(SourceState.COPYING, f"{tasks}, {left_text(view)}")
    lags = [each.lag for each in view.namespaces if each.lag is not None]
    lag = f", lag {sum(lags):,}" if lags else ""
    return Health(SourceState.FOLLOWING, f"{tasks}{lag}")


def left_text(view: SourceView) -> str:
    """Return what is left to read."""
    if not view.begun:
        return "nothing was read yet"
    copied = [each for each in view.namespaces if each.copying]
    if copied:
        rows = sum(each.rows for each in copied)
        expected = sum(each.rows_expected or 0 for each in copied)
        of = f" of about {expected:,}" if expected else ""
        return f"{rows:,}{of} rows of {format_amount(len(copied), 'namespace')} copied"
    return "its readers had not caught up"


def silent_tasks(hub: Hub, view: SourceView) -> list[SourceTask]:
    """Return the tasks that own units and sent no heartbeat for a lease."""
    lease_s = hub.settings.lease.total_seconds()
    return [each for each in view.running if each.units and each.silent_s > lease_s]


def silence_text(task: SourceTask) -> str:
    """Return what a silent task owns, and how long it is silent."""
    owned = format_amount(task.units, "unit")
    return f"task {task.id} ({task.process}) owns {owned}, no heartbeat for {task.silent_s:.0f} s"
