"""Forgetting a writer: removing its progress from the hub."""

from __future__ import annotations

import os
import socket

from tailrace.amount import format_amount
from tailrace.errors import Busy
from tailrace.hub.hub import Hub
from tailrace.operations.audit import audit_entry, audit_topic
from tailrace.operations.explanation import Fact
from tailrace.operations.pipeline.describe import view_writer
from tailrace.operations.pipeline.lookup import FoundWriter, find_writer, runner
from tailrace.operations.plan import ChangePlan
from tailrace.pipeline.catalog import find, forget_writer, hold_name
from tailrace.pipeline.writing import writer_ledger
from tailrace.topic import consumers
from tailrace.topic.audit_log import audit_append


def plan_forget(hub: Hub, writer: str) -> ChangePlan:
    """Return the plan of `forget`. Raise `Busy` while the pipeline runs."""
    found = find_writer(hub, writer)
    _check_stopped(found, runner(hub, found.pipeline.name))
    view = view_writer(hub, found)
    delivered = format_amount(view.rows, "row")
    return ChangePlan(
        writer,
        True,
        f"{writer}: forget the writer and its progress ({delivered} delivered, lag {view.lag:,})",
        (
            Fact("compaction", "no longer waits for the writer"),
            Fact("kept", "the rows in its sink, and its dead letters"),
            Fact("undo", "none; if its pipeline still defines it, it starts as a new writer"),
        ),
    )


def forget(hub: Hub, writer: str) -> ChangePlan:
    """Remove everything that the hub stores of a writer. Return the plan that was applied.

    The pipeline cannot start meanwhile. The registration of the writer is removed last, so after a
    crash `forget` can be called again.
    """
    plan = plan_forget(hub, writer)
    found = find_writer(hub, writer)
    backend = hub.backend
    owner = f"process {os.getpid()} on {socket.gethostname()}, which forgets {writer}"
    try:
        hold = backend.hold(hold_name(found.pipeline.name), owner)
    except Busy:
        _check_stopped(found, runner(hub, found.pipeline.name))
        raise
    with hold:
        view = view_writer(hub, found)
        before = {"state": view.state.value, "marks": view.marks, "rows": view.rows}
        entry = audit_entry("pipeline forget", writer, before=before, after={"done": "forgotten"})
        audit = audit_topic(hub)
        writer_ledger.delete_ledger(backend, found.name, (audit_append(audit.view, entry),))
        consumers.unregister(backend.store, found.pipeline.commit_log, writer)
        pipeline = find(backend.store, found.pipeline.name)
        if pipeline is not None:
            forget_writer(backend.store, pipeline, found.name.writer)
    return plan


def _check_stopped(found: FoundWriter, running: str | None) -> None:
    if running is not None:
        pipeline = found.pipeline.name
        raise Busy(f"pipeline {pipeline} runs: {running}", "stop it, then forget the writer")
