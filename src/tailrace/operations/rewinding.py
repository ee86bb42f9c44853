"""Rewinding a writer, and forgetting one: changes that cannot be undone, as plans and as deeds."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final

from tailrace.amount import format_amount
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import Busy, InvalidValue
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.audit import audit_append, audit_entry, audit_topic
from tailrace.operations.interventions import Decision, Operated, waiting
from tailrace.operations.offsets import parse_place
from tailrace.operations.pipelines import view_writer
from tailrace.operations.records_between import amount_within
from tailrace.operations.registered import FoundWriter, find_writer, runner
from tailrace.pipeline import books as writer_books
from tailrace.pipeline.books import Books
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import acknowledged
from tailrace.pipeline.registry import find, forget_writer, hold_name
from tailrace.topic import consumers

_SINKS: Final = (
    "  twice   rows that a topic, a table without a key or a sink of Spark holds are there twice",
    "  files   a file writer can only go back to the beginning of one of its files",
)
"""What becomes of what sinks hold: the hub does not know which of them this one is."""


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """What a change of a writer would do, in words. Without `changes` there is nothing to do."""

    target: str
    changes: bool
    lines: tuple[str, ...]


def plan_rewind(hub: Hub, writer: str, offset: str) -> WriterPlan:
    """What `rewind` would do; `InvalidValue` for an offset that the log does not have."""
    operated = Operated.find(hub, writer)
    where, start = _begin(operated, offset)
    books = operated.books()
    books.read()
    end = hub.backend.log.bounds(where).end
    again = acknowledged(books.progress[where], Offsets(start, end))
    earlier = None if books.rewind is None else books.rewind.offsets.get(str(where))
    if not again and earlier is None:
        line = f"{writer}: nothing is acknowledged from {where}@{start} on, so nothing comes again"
        return WriterPlan(writer, False, (line,))
    count = amount_within(hub.backend.log, where, again).records
    mark = books.progress[where].mark
    if earlier is None:
        lines = [f"{writer}: goes back from {where}@{mark} to @{start}"]
        again_line = f"{format_amount(count, 'record')} that it had acknowledged; "
        again_line += "a sink with a record of its own forgets them first"
    else:
        lines = [
            f"{writer}: goes back to {where}@{start}, not @{earlier}: no sink knows of that yet"
        ]
        again_line = f"all that its sink was given from @{start} on"
        if mark < start:
            again_line += f"; from @{mark} on where the sink keeps no record of its own"
    lines += [f"  again   {again_line}", *_SINKS]
    if books.plan is not None:
        lines.append("  plan    what it was about to deliver is planned anew")
    lines += [f"  when    {_when(hub, operated.found)}", "  undo    none"]
    return WriterPlan(writer, True, tuple(lines))


def rewind(hub: Hub, writer: str, offset: str) -> WriterPlan:
    """Let a writer begin again at an offset; the plan that was followed."""
    plan = plan_rewind(hub, writer, offset)
    operated = Operated.find(hub, writer)
    where, start = _begin(operated, offset)

    def decide(books: Books) -> Decision:
        extra = books.rewind_to(where, start)
        return Decision(f"rewound to {where}@{start}", None, waiting(books.state), extra)

    operated.intervene("pipeline rewind", decide)
    return plan


def _begin(operated: Operated, offset: str) -> tuple[Partition, int]:
    """Where to begin, if everything from there on is still in the log."""
    where, offsets = parse_place(operated.log, offset)
    if offsets.end > offsets.start + 1:
        raise InvalidValue("offset", offset, "one offset: all from there on comes again")
    log = operated.hub.backend.log
    start, end, _ = log.bounds(where)
    if isinstance(log, EmbeddedLog):
        start = max(start, log.compacted_below(where))
    if not start <= offsets.start <= end:
        why = "; what is older was compacted" if offsets.start < start else ""
        raise InvalidValue("offset", offsets.start, f"{start} to {end} of {where}{why}")
    return where, offsets.start


def _when(hub: Hub, found: FoundWriter) -> str:
    running = runner(hub, found.pipeline.name)
    return "at its next start" if running is None else f"at once, by {running}"


def plan_forget(hub: Hub, writer: str) -> WriterPlan:
    """What `forget` would do; `Busy` while its pipeline runs."""
    found = find_writer(hub, writer)
    _check_stopped(found, runner(hub, found.pipeline.name))
    view = view_writer(hub, found)
    lines = (
        f"{writer}: forgotten, with what it has acknowledged "
        f"({format_amount(view.rows, 'row')} delivered, {view.behind:,} behind)",
        "  compaction  no longer waits for it",
        "  kept        what its sink holds, and its dead letters",
        "  undo        none; in its pipeline's definition it begins as a new one",
    )
    return WriterPlan(writer, True, lines)


def forget(hub: Hub, writer: str) -> WriterPlan:
    """Remove all that the hub keeps of a writer; the plan that was followed.

    Its pipeline is held meanwhile, so that it cannot start. What is removed last is what the writer
    is found by, so it can be forgotten again after a crash in between.
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
        writer_books.forget(backend, found.name, (audit_append(audit, entry),))
        consumers.forget(backend.store, found.pipeline.commit_log, writer)
        pipeline = find(backend.store, found.pipeline.name)
        if pipeline is not None:
            forget_writer(backend.store, pipeline, found.name.writer)
    return plan


def _check_stopped(found: FoundWriter, running: str | None) -> None:
    if running is not None:
        pipeline = found.pipeline.name
        raise Busy(f"pipeline {pipeline} runs: {running}", "stop it, then forget the writer")
