"""A pipeline explained: whether it runs, what reader and writers wait for, and commands."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import ExplainedPart, Explanation, Fact, Remedy
from tailrace.operations.health import time_text
from tailrace.operations.pipeline.describe import PipelineView, WriterView, view_pipeline
from tailrace.operations.pipeline.lookup import find_pipeline
from tailrace.pipeline.writer_status import WriterStatus


class _State(NamedTuple):
    """The state of a pipeline without its writers, and the reason of a problem."""

    name: str
    problem: str = ""


def explain_pipeline(hub: Hub, name: str) -> Explanation:
    """Explain a pipeline. Raise `InvalidValue` for an unknown name."""
    view = view_pipeline(hub, find_pipeline(hub, name))
    state = _state_of(view)
    facts = [Fact("reason", state.problem)] if state.problem else []
    facts.append(Fact("reads", f"{view.reader} -> {view.commit_log}"))
    if view.source is not None:
        facts.append(Fact(f"source {view.source}", str(view.source_state)))
    remedies = [] if view.running else [Remedy("run", view.run_command)]
    if view.unreadable:
        command = f"tailrace dlq {name} list --by error"
        letters = format_amount(view.unreadable, "pending dead letter")
        remedies.append(Remedy("dead letters", command, f"{letters} of its reader"))
    if view.source is not None:
        remedies.append(Remedy("source", f"tailrace explain {view.source}", "its tasks"))
    parts = [_of_writer(writer) for writer in view.writers]
    for each in parts:
        facts += each.facts
        remedies += each.remedies
    waits = bool(state.problem) or any(each.waits for each in parts)
    headline = f"{state.name}: pipeline {name} {_running(view)}"
    return Explanation(name, waits, headline, tuple(facts), tuple(remedies))


def parts_of_log(view: PipelineView) -> list[ExplainedPart]:
    """Return the pipeline whose commit log a topic is, then its writers."""
    state = _state_of(view)
    what = f"the topic is its commit log; it {_running(view)}"
    what += f"; {state.problem}" if state.problem else ""
    more = Remedy("pipeline", f"tailrace explain {view.name}")
    facts = (Fact(view.name, what),)
    pipeline = ExplainedPart(view.name, state.name, bool(state.problem), facts, (more,))
    return [pipeline, *map(_of_writer, view.writers)]


def _state_of(view: PipelineView) -> _State:
    if view.start_error is not None:
        return _State("FAILED", f"the last run did not start: {view.start_error}")
    if view.reader_failed is not None:
        at = time_text(view.reader_failed)
        return _State("FAILED", f"its reader failed at {at}: {view.reader_error}")
    if view.reader_blocked:
        return _State(
            "BLOCKED", f"its reader waits for {view.slowest}, whose lag exceeds log_bytes_max"
        )
    if view.reader_waits is not None:
        return _State("WAITING", f"its reader finds nothing to read: {view.reader_waits}")
    if view.starting:
        return _State("STARTING")
    return _State("RUNNING" if view.running else "STOPPED")


def _of_writer(writer: WriterView) -> ExplainedPart:
    since = "" if writer.since is None else f" since {time_text(writer.since)}"
    where = f" at {writer.position}" if writer.error and writer.position else ""
    error = f"{where}: {writer.error}" if writer.error else ""
    what = f"{writer.state.value}{since}, lag {writer.lag:,}{error}"
    waits = writer.state in (WriterStatus.FAILED, WriterStatus.WAITING) or bool(writer.lag)
    helps = (Remedy("writer", f"tailrace explain {writer.name}"),) if waits else ()
    facts = (Fact(writer.name, what),)
    return ExplainedPart(writer.name, writer.state.name, waits, facts, helps)


def _running(view: PipelineView) -> str:
    if view.running is not None:
        return f"runs: {view.running}"
    stopped = "" if view.last_stop is None else f" since {time_text(view.last_stop)}"
    return f"does not run{stopped}"
