"""Forgetting a source that will not run again: removing what the hub stores of its reading."""

from __future__ import annotations

from tailrace.amount import format_amount
from tailrace.errors import Busy
from tailrace.hub.hub import Hub
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.explanation import Fact
from tailrace.operations.pipeline.lookup import runner
from tailrace.operations.plan import ChangePlan
from tailrace.operations.source.describe import SourceView, view_source
from tailrace.source.lifecycle import forget_source


def plan_forget(hub: Hub, name: str) -> ChangePlan:
    """Return the plan of `forget`. Raises as `find_entry`, and `Busy` while a task runs, or the
    pipeline of this name."""
    view = view_source(hub, name)
    _check_stopped(hub, view)
    splits, records = format_amount(view.splits, "split"), format_amount(view.records, "record")
    facts = [
        Fact("kept", f"the commit log {view.commit_log} with {records}, and its dead letters"),
        Fact("next run", "reads everything again: a source of this name starts as a new one"),
        Fact("undo", "none"),
    ]
    for pipeline in view.followed_by:
        stays = "follows it, and cannot start until a source of this name has run"
        facts.insert(0, Fact(f"pipeline {pipeline}", stays))
    if view.pipeline:
        facts.insert(0, Fact(f"pipeline {name}", "reads it; its writers get every row once more"))
    summary = f"{name}: forget the source and its positions in {splits}"
    return ChangePlan(name, True, summary, tuple(facts))


def forget(hub: Hub, name: str, reason: str = "") -> ChangePlan:
    """Remove everything that the hub stores of a source but its commit log and its dead letters.
    Return the plan that was applied.

    The entry of the source is removed last, so after a crash `forget` can be called again.
    """
    plan = plan_forget(hub, name)
    view = view_source(hub, name)
    before = {each.namespace: each.rows for each in view.namespaces}
    forget_source(hub, name)
    after = {"done": "forgotten"}
    append_audit(hub, audit_entry("source forget", name, before=before, after=after, reason=reason))
    return plan


def _check_stopped(hub: Hub, view: SourceView) -> None:
    running = [str(task.process) for task in view.running]
    if not running and (alone := runner(hub, view.name)) is not None:
        running = [alone]
    if running:
        what = f"source {view.name} runs: {', '.join(running)}"
        raise Busy(what, "stop its tasks, then forget it")
