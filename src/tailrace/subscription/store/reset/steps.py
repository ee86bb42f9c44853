"""The steps of an offset reset.

Ledgers are in tables; the definition, grants and fences are in the store; no commit writes both. So
a reset has steps, and any process that finds an unfinished one may finish it:

1. The entry ``subscription-reset/NAME`` becomes *pending* and holds the new marks. The same commit
   raises the fences of all shards: their owners can store nothing any more, and no shard is
   granted. If the topic is reset, the definition has the new number from then on.
2. What is to be written is read. The tables are written under the fence of the subscription, which
   is raised after that while the entry is pending: of several processes that finish the reset, only
   the last can write.
3. The entry becomes *done*, and shards are granted again.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, Fence
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import Busy, Conflict, Fenced, UnknownTopic
from tailrace.group.store.start import StartLike
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription, find_subscription
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.names import RESETS, SUBSCRIPTIONS, own_fence, shard_fence
from tailrace.subscription.store.reset.apply import (
    ResetWrites,
    apply_reset,
    is_applied,
    reset_writes,
)
from tailrace.subscription.store.reset.entry import ResetEntry, ResetState, StoredReset, find_reset
from tailrace.subscription.store.reset.plan import (
    ResetPlan,
    parse_queue,
    parse_target,
    plan_of,
    queue_topic,
)
from tailrace.topic.composite import TOPICS


class Operator(NamedTuple):
    """Who resets, by which command, and why: for the audit. `who` is ``user@host``."""

    who: str
    pid: int
    command: str
    reason: str = ""


def plan_reset(
    backend: Backend, subscription: str, to: StartLike, *, queue: str = "mq"
) -> ResetPlan:
    """Return the plan of `reset`. Changes nothing. Raises as `plan_of` does, and
    `UnknownSubscription`."""
    stored = read_subscription(backend, subscription)
    return plan_of(backend, stored, parse_queue(queue), parse_target(to))


def reset(
    backend: Backend,
    subscription: str,
    to: StartLike,
    *,
    queue: str = "mq",
    operator: Operator,
    now_ms: int,
) -> ResetPlan:
    """Reset a subscription, and return the plan that was executed.

    If it moves no partition, nothing is changed. It is in effect, and will be finished, once its
    first step is committed. The plan counts what was acknowledged then: messages that workers had
    handled, and not acknowledged, are read again too. Raises as `plan_reset` does, and `Busy` while
    the number of shards is changed.
    """
    plan = begin_reset(backend, subscription, to, queue=queue, operator=operator, now_ms=now_ms)
    finish_reset(backend, subscription)
    return plan


def begin_reset(
    backend: Backend,
    subscription: str,
    to: StartLike,
    *,
    queue: str = "mq",
    operator: Operator,
    now_ms: int,
) -> ResetPlan:
    """Take the first step of `reset`, once no other reset is pending."""
    chosen, target = parse_queue(queue), parse_target(to)

    def attempt() -> ResetPlan | None:
        finish_reset(backend, subscription)
        last = find_reset(backend.store, subscription)
        if last is not None and last.pending:
            return None  # Another process began a reset meanwhile.
        stored = read_subscription(backend, subscription)
        if stored.definition.phase is not None:
            raise Busy(
                f"the number of shards of {subscription} is being changed",
                "reset it once that is done, or take the change back: tailrace subscription"
                f" reshard {subscription} {stored.definition.shards}",
            )
        plan = plan_of(backend, stored, chosen, target)
        if plan.partitions:
            backend.store.commit(_pending(stored, last, plan, chosen, operator, now_ms))
        return plan

    return retry_on_conflict(attempt, f"subscription {subscription!r}")


def finish_reset(backend: Backend, subscription: str) -> bool:
    """Finish the pending reset, even while other processes try the same. False if there is none, or
    if another process finished it."""
    found = find_reset(backend.store, subscription)
    while found is not None and found.pending:
        if _run(finishing(backend, subscription)):
            return True
        before, found = found, find_reset(backend.store, subscription)
        if found != before:
            break
    return False


def finishing(backend: Backend, subscription: str) -> Generator[None, None, bool]:
    """One attempt of `finish_reset`. It yields wherever another process may intervene.

    To read may take long. So the fence is raised after it: processes that finish at the same time
    would fence each other again and again.
    """
    found = find_reset(backend.store, subscription)
    if found is None or not found.pending:
        return False
    yield
    stored = find_subscription(backend, subscription)
    if stored is None:
        return False
    yield
    due = _read(backend, stored, found)
    if due is None:
        return False
    yield
    fence = _take(backend, subscription, found)
    if fence is None:
        return False
    yield
    if not is_applied(backend, subscription, found.reset):
        yield
        try:
            apply_reset(backend, due, fence)
        except Fenced:
            return False
    yield
    done = msgspec.structs.replace(found.reset, state=ResetState.DONE, marks={})
    key = RESETS + subscription
    writes = {key: msgspec.json.encode(done), FENCES + fence.name: b""}
    try:
        backend.store.commit(Change({key: found.version}, writes))
    except Conflict:
        return False
    return True


def _run(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            done: bool = end.value
            return done


def _read(backend: Backend, stored: StoredSubscription, found: StoredReset) -> ResetWrites | None:
    """Read what a reset writes; None if the subscription was deleted meanwhile, with its queues."""
    try:
        return reset_writes(backend, stored, found.reset)
    except UnknownTopic:
        if find_reset(backend.store, stored.name) == found:
            raise
        return None


def _take(backend: Backend, subscription: str, found: StoredReset) -> Fence | None:
    """Become the one process that may write a pending reset; None if it is not pending any more."""
    name = own_fence(subscription)
    change = Change({RESETS + subscription: found.version}, {FENCES + name: b""})
    try:
        return Fence(name, backend.store.commit(change))
    except Conflict:
        return None


def _pending(
    stored: StoredSubscription,
    last: StoredReset | None,
    plan: ResetPlan,
    queue: Queue,
    operator: Operator,
    now_ms: int,
) -> Change:
    """Return the first step: it fences the owners of all shards."""
    name, definition = stored.name, stored.definition
    topic = queue_topic(stored, queue)
    entry = ResetEntry(
        ResetState.PENDING,
        1 if last is None else last.reset.number + 1,
        plan.queue,
        plan.target,
        {str(each.partition): each.mark for each in plan.partitions},
        definition.reset,
        stored.main.definition.pointer + 1,
        *operator,
        time_ms=now_ms,
    )
    expect = {
        RESETS + name: 0 if last is None else last.version,
        SUBSCRIPTIONS + name: stored.version,
        TOPICS + topic.topic: topic.version,
    }
    after = msgspec.structs.replace(definition, reset=plan.number)
    writes: dict[str, bytes | None] = {
        RESETS + name: msgspec.json.encode(entry),
        SUBSCRIPTIONS + name: msgspec.json.encode(after),
    }
    for unit in stored.units:
        writes[FENCES + shard_fence(name, unit, 0).name] = b""
    return Change(expect, writes)
