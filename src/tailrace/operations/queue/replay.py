"""Replays of a queue: begun, continued, listed and cancelled. Beginning and cancelling are
audited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.replay import Replay
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.queue.replay.progress import ReplayProgress
from tailrace.subscription.store.names import replay_subscription
from tailrace.terminal.tables import format_time
from tailrace.topic.offset_spec import parse_time


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A replay of a queue: its range of time, who asked for it, its state and its messages."""

    queue: str
    id: str
    start: datetime
    end: datetime
    by: str
    created: datetime
    has_handler: bool
    state: str
    done: int
    left: int
    retrying: int
    dead: int
    discarded: int


Observe = Callable[[Replay], bool]
"""Is told of a replay that runs, again and again; returns False to stop the work on it."""


def begin_replay(
    hub: Hub,
    name: str,
    *,
    start: str,
    end: str | None,
    id: str | None,
    handler: Any,
    observe: Observe,
) -> ReplayReport:
    """Replay a range of time, in this process until it has ended or `observe` stops it.

    Raises `UnknownQueue`, `InvalidValue` for times that are not valid, and `NotRetained`.
    """
    queue = hub.queue(name, strict=True)
    first = _time_ms("--from", start)
    after = None if end is None else _time_ms("--to", end)
    with queue.replay(first, after, handler, id=id) as replay:
        job = replay.job
        period = f"{format_time(utc_time(job.start_ms))} to {format_time(utc_time(job.end_ms))}"
        done = {"done": f"began replay {replay.id} of {period}"}
        append_audit(hub, audit_entry("queue replay", name, after=done))
        _attend(replay, observe)
        return _report(replay)


def resume_replay(hub: Hub, name: str, id: str, *, handler: Any, observe: Observe) -> ReplayReport:
    """Continue a replay in this process until it has ended or `observe` stops it.

    Raises `UnknownQueue`, `UnknownReplay`, and `InvalidValue` if it needs a handler, or takes none.
    """
    with hub.queue(name, strict=True).resume_replay(id, handler) as replay:
        _attend(replay, observe)
        return _report(replay)


def cancel_replay(hub: Hub, name: str, id: str) -> ReplayReport:
    """End a replay for all processes. Raises `UnknownQueue` and `UnknownReplay`."""
    replay = hub.queue(name, strict=True).find_replay(id)
    if replay.cancel():
        done = {"done": f"cancelled replay {id}"}
        append_audit(hub, audit_entry("queue replay --cancel", name, after=done))
    return _report(replay)


def list_replays(hub: Hub, name: str) -> list[ReplayReport]:
    """Return the replays of a queue, the oldest first. Raises `UnknownQueue`."""
    return [_report(each) for each in hub.queue(name, strict=True).replays()]


def resume_command(queue: str, id: str, *, has_handler: bool) -> str:
    """Return the command that continues a replay."""
    handler = " --handler MODULE:FUNCTION" if has_handler else ""
    return f"tailrace queue replay {queue} --resume {id}{handler}"


def letters_command(queue: str, id: str) -> str:
    """Return the command that lists the dead letters of a replay."""
    return f"tailrace dlq {replay_subscription(queue, id)} list"


def progress_text(name: str, progress: ReplayProgress) -> str:
    """Return how far a replay is, in one line."""
    messages = format_amount(progress.total, "message")
    text = f"{name}: {progress.done:,} of {messages} replayed"
    if progress.retrying:
        text += f", {progress.retrying:,} retrying"
    return text + (f", {progress.dead:,} dead letters" if progress.dead else "")


def _attend(replay: Replay, observe: Observe) -> None:
    while not replay.wait("200ms"):
        if not observe(replay):
            return


def _report(replay: Replay) -> ReplayReport:
    progress, job = replay.progress(), replay.job
    return ReplayReport(
        replay.queue,
        replay.id,
        utc_time(job.start_ms),
        utc_time(job.end_ms),
        job.by,
        utc_time(job.created_ms),
        job.has_handler,
        progress.state.value,
        progress.done,
        progress.left,
        progress.retrying,
        progress.dead,
        progress.discarded,
    )


def _time_ms(option: str, text: str) -> int:
    found = parse_time(text.removeprefix("@"))
    if found is None:
        raise InvalidValue(option, text, "a time, for example 2026-01-31T08:00Z")
    return found
