"""The checks of a subscription for `tailrace status`: problems, and notes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.duration import format_age
from tailrace.hub.hub import Hub
from tailrace.operations.problem import Problem
from tailrace.operations.subscription.health import (
    blocked_text,
    held_back_text,
    lag_text,
    requests_text,
    resume_command,
    silence_text,
    silent_workers,
    worker_word,
)
from tailrace.operations.subscription.next_generation import change_text
from tailrace.subscription.store.describe import SubscriptionInfo
from tailrace.topic.scaling import enough_partitions

RETRY_MAX: Final = timedelta(minutes=1)
"""A key that is retried for longer is a problem; before, it is a note."""

HELD_BACK_MAX: Final = timedelta(seconds=10)
"""A throttle that held a message back within this time still does: it stores when it did."""


class CheckedSubscription(NamedTuple):
    """What the checks of a subscription found."""

    problems: list[Problem]
    notes: list[Problem]


def check_subscription(hub: Hub, info: SubscriptionInfo, now: datetime) -> CheckedSubscription:
    """Check a subscription."""
    subject, explain = f"{info.kind} {info.name}", f"tailrace explain {info.name}"
    if info.topic_deleted:
        what = f"its topic {info.topic} was deleted"
        remedy = f"tailrace {info.kind} delete {info.name}"
        return CheckedSubscription([], [Problem(subject, what, remedy)])
    problems = [Problem(subject, *each) for each in _problems(hub, info, now)]
    notes: list[Problem] = []
    since = info.backlog.retrying_since
    if since is not None and info.workers and info.paused is None:
        what = f"retrying {format_amount(info.backlog.retrying_keys, 'key')}"
        what += f" for {format_age(now - since)}, {info.backlog.rq:,} in RQ"
        (problems if now - since > RETRY_MAX else notes).append(Problem(subject, what, explain))
    if info.following is not None:
        notes.append(Problem(subject, change_text(info), explain))
    if len(info.workers) > info.shards:
        notes.append(Problem(subject, *_standby(info)))
    return CheckedSubscription(problems, notes)


def _standby(info: SubscriptionInfo) -> tuple[str, str]:
    """Return that more workers run than there are shards, with what would use or show them."""
    workers = format_amount(len(info.workers), worker_word(info))
    standby, shards = len(info.workers) - info.shards, format_amount(info.shards, "shard")
    what = f"{standby:,} of {workers} on standby: {shards}"
    if not info.queue:
        return what, f"tailrace subscription show {info.name}"
    enough = enough_partitions(info.shards, len(info.workers))
    return what, f"{enough} shards would use them: tailrace subscription reshard {info.name} NUMBER"


def _problems(hub: Hub, info: SubscriptionInfo, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield descriptions of problems, each with a command or action that helps."""
    name, backlog, explain = info.name, info.backlog, f"tailrace explain {info.name}"
    if info.paused is not None:
        age = format_age(now - utc_time(info.paused.since_ms))
        what = f"PAUSED for {age} by {info.paused.by}: {info.paused.reason}, {lag_text(info)}"
        yield what, resume_command(info)
    if not info.workers and (backlog.mq or backlog.rq or info.requests):
        runs = worker_word(info)
        what = f"UNATTENDED: {lag_text(info)}, no {runs} runs"
        if info.requests:
            what += f", {requests_text(info)}"
        yield what, f"start its {runs}s; {explain}"
    if info.held_back is not None and info.workers and now - info.held_back < HELD_BACK_MAX:
        yield held_back_text(info), explain
    for each in silent_workers(hub, info):
        yield silence_text(each), f"tailrace subscription show {name}"
    if backlog.blocked:
        oldest = min(backlog.blocked, key=lambda each: each.head.queued)
        what = f"{blocked_text(info)}, oldest {format_age(now - oldest.head.queued)}"
        one = backlog.blocked_keys == 1
        yield what, f"{explain} --key {shlex.quote(oldest.key)}" if one else explain
    if backlog.aside:
        what = format_amount(backlog.aside, "pending dead letter")
        yield what, f"tailrace dlq {name} list --by error"
