"""The state of a subscription as a whole, and since when."""

from __future__ import annotations

from enum import StrEnum

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.operations.health import Health
from tailrace.operations.subscription.next_generation import change_text, changes_now
from tailrace.subscription.store.describe import SubscriptionInfo
from tailrace.subscription.store.owners import SubscriptionWorker


class SubscriptionState(StrEnum):
    """What a subscription does. The first that applies is its state."""

    TOPIC_DELETED = "TOPIC DELETED"
    PAUSED = "PAUSED"
    UNATTENDED = "UNATTENDED"
    """Messages or requests wait, and no worker runs."""
    SILENT = "SILENT"
    """A worker owns shards and sends no heartbeat."""
    BLOCKED = "BLOCKED"
    """Dead letters block some keys."""
    CHANGING = "CHANGING"
    """The next generation is being made: no shard delivers for a moment."""
    RETRYING = "RETRYING"
    DELIVERING = "DELIVERING"
    CAUGHT_UP = "CAUGHT UP"
    IDLE = "IDLE"
    """Every message is acknowledged, and no worker runs."""


def judge(hub: Hub, info: SubscriptionInfo) -> Health[SubscriptionState]:
    """Return the state of a subscription."""
    backlog, lag = info.backlog, lag_text(info)
    worker = worker_word(info)
    if info.topic_deleted:
        why = f"topic {info.topic!r} is deleted"
        return Health(SubscriptionState.TOPIC_DELETED, why)
    if info.paused is not None:
        why = f"{info.paused.reason} ({info.paused.by}), {lag}"
        since = utc_time(info.paused.since_ms)
        return Health(SubscriptionState.PAUSED, why, since)
    if not info.workers and (lag_of(info) or info.requests):
        waits = f", {requests_text(info)}" if info.requests else ""
        why = f"no {worker} runs, {lag}{waits}"
        return Health(SubscriptionState.UNATTENDED, why)
    if silent := silent_workers(hub, info):
        longest = max(silent, key=lambda each: each.silent_s)
        why = f"{silence_text(longest)}, {lag}"
        return Health(SubscriptionState.SILENT, why)
    if backlog.blocked_keys:
        since = min(each.head.queued for each in backlog.blocked)
        return Health(SubscriptionState.BLOCKED, blocked_text(info), since)
    if changes_now(info.following):
        return Health(SubscriptionState.CHANGING, f"{change_text(info)}, {lag}")
    if backlog.rq:
        keys = format_amount(backlog.retrying_keys, "key")
        why = f"messages of {keys} failed, {lag}"
        return Health(SubscriptionState.RETRYING, why, backlog.retrying_since)
    if lag_of(info):
        running = format_amount(len(info.workers), worker)
        return Health(SubscriptionState.DELIVERING, f"{lag}, {running}")
    done = "every message is acknowledged"
    if backlog.dlq:
        done += f" or a dead letter: {format_amount(backlog.dlq, 'dead letter')}"
    if info.workers:
        return Health(SubscriptionState.CAUGHT_UP, done)
    return Health(SubscriptionState.IDLE, f"{done}, no {worker} runs")


def lag_of(info: SubscriptionInfo) -> int:
    """Return the number of messages to deliver, without dead letters."""
    closed = 0 if info.closed is None else info.closed.waiting
    return info.backlog.mq + info.backlog.rq + closed


def lag_text(info: SubscriptionInfo) -> str:
    """Return the lag in words."""
    return f"lag {lag_of(info):,}"


def worker_word(info: SubscriptionInfo) -> str:
    """Return what people call a worker: those of a queue are its consumers."""
    return "consumer" if info.queue else "worker"


def resume_command(info: SubscriptionInfo) -> str:
    """Return the command that ends a pause."""
    return f"tailrace {resume_verb(info.kind)} {info.name}"


def resume_verb(kind: str) -> str:
    """Return the command, without its argument, that ends the pause of a queue or subscription."""
    return "queue play" if kind == "queue" else "subscription resume"


def silent_workers(hub: Hub, info: SubscriptionInfo) -> list[SubscriptionWorker]:
    """Return the workers that own shards and sent no heartbeat for a lease."""
    lease_s = hub.settings.lease.total_seconds()
    return [each for each in info.workers if each.shards and each.silent_s > lease_s]


def silence_text(worker: SubscriptionWorker) -> str:
    """Return what a silent worker owns, and how long it is silent."""
    owned = format_amount(len(worker.shards), "shard")
    return f"{worker.id} owns {owned}, no heartbeat for {worker.silent_s:.0f} s"


def blocked_text(info: SubscriptionInfo) -> str:
    """Return the number of blocked keys, and of the messages behind their dead letters."""
    count = info.backlog.blocked_keys
    blocked = (
        "1 key blocked by a dead letter"
        if count == 1
        else f"{count:,} keys blocked by dead letters"
    )
    return f"{blocked}, {info.backlog.behind:,} behind {'it' if count == 1 else 'them'}"


def held_back_text(info: SubscriptionInfo) -> str:
    """Return that the throttle holds messages back, and why."""
    share, waiting = info.load.texts["throttle"], format_amount(info.backlog.mq, "message")
    return f"the throttle holds back {waiting}: those that fail are {share} of the usual calls"


def requests_text(info: SubscriptionInfo) -> str:
    """Return the number of requests that wait."""
    verb = "waits" if info.requests == 1 else "wait"
    return f"{format_amount(info.requests, 'request')} {verb}"
