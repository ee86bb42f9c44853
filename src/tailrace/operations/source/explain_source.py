"""A source explained: its tasks, namespaces, what waits for what, and commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.health import time_text
from tailrace.operations.source.describe import SourceView, WaitingSplit, view_source
from tailrace.operations.source.health import SourceState, is_well, judge_source
from tailrace.source.display import namespace_text

SHOWN_MAX: Final = 10
"""Number of namespaces and of waiting splits that are listed."""


def explain_source(hub: Hub, name: str) -> Explanation:
    """Explain a source. Raises as `find_entry`."""
    view = view_source(hub, name)
    health = judge_source(hub, view)
    since = "" if health.since is None else f" since {time_text(health.since)}"
    headline = f"{health.state}: source {name}{since}: {health.why}"
    facts = [*_what(view), *_tasks(view), *_ended(view), *_namespaces(view), *_waiting(view)]
    remedies = [*_remedies(view, health.state)]
    return Explanation(name, not is_well(health.state), headline, tuple(facts), tuple(remedies))


def _what(view: SourceView) -> Iterator[Fact]:
    records = format_amount(view.records, "record")
    yield Fact("reads", f"{view.reader} -> {view.commit_log}, {records}")
    unfinished = f"{view.unfinished:,} of {format_amount(view.splits, 'split')}"
    yield Fact("splits", f"{unfinished} not finished, {len(view.waiting):,} of them waiting")
    if view.followed_by:
        yield Fact("read by", f"pipeline {', '.join(view.followed_by)}")


def _tasks(view: SourceView) -> Iterator[Fact]:
    # If none runs, a dead one is told as killed.
    for task in view.tasks if view.running else ():
        process = "its process died; another task takes its units" if not task.process else ""
        leads = ", leads" if task.leads else ""
        owned = f"{format_amount(task.units, 'unit')}, {task.reading:,} of them being read"
        yield Fact(f"task {task.id}", f"{process or task.process}{leads}, {owned}")


def _ended(view: SourceView) -> Iterator[Fact]:
    """Yield the tasks that ended or died since the last one began."""
    for each in view.ended[-SHOWN_MAX:]:
        if each.error is not None:
            what = f"failed {_at(each.ended)}: {each.error}"
        elif each.ended is None:
            what = f"was killed; it began {_at(each.started)}"
        else:
            what = f"stopped {_at(each.ended)}{', caught up' if each.caught_up else ''}"
        yield Fact(f"task {each.id}", f"{each.process} {what}")


def _at(time: object) -> str:
    return "" if time is None else f"at {time:%Y-%m-%d %H:%M:%S}Z"


def _namespaces(view: SourceView) -> Iterator[Fact]:
    ordered = sorted(view.namespaces, key=lambda each: (not each.copying, each.namespace))
    for each in ordered[:SHOWN_MAX]:
        yield Fact(each.namespace, namespace_text(each))
    if len(ordered) > SHOWN_MAX:
        more = format_amount(len(ordered) - SHOWN_MAX, "more namespace")
        yield Fact("...", f"and {more}")


def _waiting(view: SourceView) -> Iterator[Fact]:
    for each in view.waiting[:SHOWN_MAX]:
        yield Fact("waits", _waiting_text(each))
    if len(view.waiting) > SHOWN_MAX:
        more = format_amount(len(view.waiting) - SHOWN_MAX, "more split")
        yield Fact("...", f"and {more} that wait")


def _waiting_text(split: WaitingSplit) -> str:
    if split.unmet:
        unknown = f"{split.unmet[0]}, which no split has reported"
        return f"split {split.split} starts when {unknown} is finished"
    first, *rest = split.waits_for
    more = f" and {format_amount(len(rest), 'more split')}" if rest else ""
    return f"split {split.split} starts when {first}{more} {'are' if rest else 'is'} finished"


def _remedies(view: SourceView, state: SourceState) -> Iterator[Remedy]:
    if not view.running and not view.alone:
        yield Remedy("run", view.run_command, "continues where it stopped")
    if state in (SourceState.FAILED, SourceState.WAITING) and view.run_command:
        test = view.run_command.replace(" run ", " test ", 1)
        yield Remedy("test", test, "connects, and shows rows")
    if view.running:
        watch = f"tailrace source status {view.name} --watch"
        yield Remedy("watch", watch, "rows, rates and lag by namespace")
        if state is not SourceState.WAITING:
            yield Remedy("more tasks", view.run_command, "each takes its part of the units")
    if view.unreadable:
        letters = format_amount(view.unreadable, "pending dead letter")
        yield Remedy("dead letters", f"tailrace dlq {view.name} list --by error", letters)
    yield Remedy("history", f"tailrace source history {view.name}")
