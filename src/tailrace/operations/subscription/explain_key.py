"""A key of a subscription explained: what holds it, since when, who owns it, and what helps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.health import time_text
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.store.key_state import HeadMessage, KeyState, KeyStatus
from tailrace.subscription.store.owners import ShardOwner

IN_QUEUE: Final = {
    Queue.MQ: "in the topic (MQ)",
    Queue.RQ: "in the retry queue (RQ)",
    Queue.DLQ: "in the dead-letter queue (DLQ)",
}


def explain_key(hub: Hub, name: str, key: str) -> Explanation:
    """Explain a key. Raise `UnknownSubscription`, or `InvalidValue` for an empty key."""
    subscription = hub.subscription(name)
    state, run = subscription.explain(key), run_remedy(name, subscription.definition.endpoint)
    facts = [*_behind(state), *_last(state), owner_fact(hub, state.shard, state.owner)]
    facts += _set_aside(state)
    waits = state.head is not None
    remedies = tuple(_remedies(state, run))
    return Explanation(f"{name} --key {key}", waits, headline(state), tuple(facts), remedies)


def headline(state: KeyState) -> str:
    """Return the state of a key and the reason for it, in one line."""
    since = "" if state.since is None else f" since {time_text(state.since)}"
    head, key = state.head, repr(state.key)
    if head is None:
        if state.owner is None:
            return f"IDLE: every message of {key} is acknowledged, no worker owns its shard"
        return f"CAUGHT UP: every message of {key} is acknowledged"
    count = count_messages(state)
    messages = f"{format_amount(count, 'message')} of {key}"
    waiting = f"{messages} {'waits' if count == 1 else 'wait'}"
    if state.state is KeyStatus.BLOCKED:
        return f"BLOCKED{since} by dead letter {head.origin} (policy on_dead_letter=block)"
    if state.state is KeyStatus.PAUSED and state.paused is not None:
        return f"PAUSED{since} by {state.paused.by}: {state.paused.reason}; {waiting}"
    if state.state is KeyStatus.UNATTENDED:
        return f"UNATTENDED: no worker owns shard {state.shard}, {waiting}"
    if state.state is KeyStatus.RETRYING:
        return f"RETRYING{since}: {head.origin} {next_attempt_text(head)}"
    if state.state is KeyStatus.WAITING:
        return f"WAITING: {_waits_for(state)}, {waiting}"
    return f"DELIVERING: {messages} to deliver, nothing holds them"


def count_messages(state: KeyState) -> int:
    """Return the number of messages of a key that are not acknowledged and hold back or wait."""
    dead = state.dlq if state.on_dead_letter is OnDeadLetter.BLOCK else 0
    return state.mq + state.rq + dead + state.closed


def attempts_text(head: HeadMessage) -> str:
    """Return the number of failed attempts: ``attempt 3 of 8``. A redelivered letter has more than
    the policy allows: ``attempt 9``."""
    many = head.attempts_max is None or head.attempts > head.attempts_max
    last = "" if many else f" of {head.attempts_max:,}"
    return f"attempt {head.attempts:,}{last}"


def next_attempt_text(head: HeadMessage) -> str:
    """Return what becomes of a message of RQ: when it is called again."""
    if not head.attempts:
        return "was not attempted yet; it is called when those before it are done"
    if head.due is None:
        return f"failed {attempts_text(head)}, the next attempt is due now"
    return f"failed {attempts_text(head)}, the next attempt is at {head.due:%H:%M:%S}Z"


def owner_fact(hub: Hub, shard: int, owner: ShardOwner | None) -> Fact:
    """Return who owns a shard."""
    if owner is None:
        return Fact("owner", f"shard {shard} has no owner: no worker runs, or it is being granted")
    text = f"shard {shard}, worker {owner.worker} ({owner.process}), epoch {owner.epoch}"
    if owner.silent_s > hub.settings.lease.total_seconds():
        text += f"; no heartbeat for {owner.silent_s:.0f} s: the process is stopped or cut off"
    return Fact("owner", text)


def run_remedy(name: str, endpoint: Endpoint | None) -> Remedy:
    """Return the command that runs a worker."""
    if endpoint is not None:
        return Remedy("run", f"tailrace subscription run {name}", f"delivers to {endpoint.url}")
    command = f"tailrace subscription run {name} MODULE:FUNCTION"
    return Remedy("run", command, "or start the app that declares the subscription")


def _waits_for(state: KeyState) -> str:
    if state.waits_for:
        return f"{', '.join(state.waits_for)} must be finished first, to keep the order of the key"
    return (
        f"the next generation reads storage {state.closed_storage} once all before is finished,"
        " since keys change their shard"
    )


def _behind(state: KeyState) -> Iterator[Fact]:
    """Yield where the messages of a key are; the first one is named elsewhere."""
    if state.head is None:
        return
    found = {
        "DLQ": state.dlq if state.on_dead_letter is OnDeadLetter.BLOCK else 0,
        "RQ": state.rq,
        "MQ": state.mq,
        f"storage {state.closed_storage}": state.closed,
    }
    in_closed = state.head.queue is Queue.MQ and not state.mq
    head = f"storage {state.closed_storage}" if in_closed else state.head.queue.name
    found = {queue: count - (queue == head) for queue, count in found.items()}
    behind = sum(found.values())
    more = "" if state.complete else "at least "
    if not behind:
        yield Fact("behind it", f"no other message of {state.key!r}")
        return
    text = f"{more}{format_amount(behind, 'message')} of {state.key!r}"
    used = {queue: count for queue, count in found.items() if count}
    if len(used) == 1:
        yield Fact("behind it", f"{text}, in {next(iter(used))}")
    else:
        parts = ", ".join(f"{count:,} in {queue}" for queue, count in used.items())
        yield Fact("behind it", f"{text}: {parts}")


def _last(state: KeyState) -> Iterator[Fact]:
    head = state.head
    if head is None:
        return
    if state.state not in (KeyStatus.BLOCKED, KeyStatus.RETRYING):
        yield Fact("first", f"{head.origin}, of {time_text(head.pushed)}, {IN_QUEUE[head.queue]}")
    if head.attempts or head.error:
        attempt = f"{attempts_text(head)}: " if head.attempts else ""
        yield Fact("last", f"{attempt}{head.error}")


def _set_aside(state: KeyState) -> Iterator[Fact]:
    if state.dlq and state.on_dead_letter is OnDeadLetter.CONTINUE:
        letters = format_amount(state.dlq, "dead letter")
        yield Fact("set aside", f"{letters}; later messages are delivered without them")


def _remedies(state: KeyState, run: Remedy) -> Iterator[Remedy]:
    """Yield the commands that help; `run` runs a worker."""
    name, key = state.subscription, shlex.quote(state.key)
    head = state.head
    if state.state is KeyStatus.BLOCKED and head is not None:
        again = f"tailrace dlq {name} redeliver --key {key}"
        yield Remedy("retry", again, f"{format_amount(state.dlq, 'message')}, in order")
        then = f"then redeliver the {state.dlq - 1:,} behind it" if state.dlq > 1 else ""
        yield Remedy("skip", f"tailrace dlq {name} discard {head.origin} --reason TEXT", then)
        if state.owner is None:
            yield run
    elif state.dlq and state.on_dead_letter is OnDeadLetter.CONTINUE:
        again = f"tailrace dlq {name} redeliver --key {key}"
        yield Remedy("retry", again, format_amount(state.dlq, "dead letter"))
    if state.paused is not None:
        yield Remedy("resume", f"tailrace subscription resume {name}", "its workers continue")
    if state.state is KeyStatus.UNATTENDED and head is not None:
        yield run
    if state.state is KeyStatus.WAITING:
        yield Remedy("subscription", f"tailrace explain {name}")
