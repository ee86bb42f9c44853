"""Changing the number of shards of a subscription: the plan, the change, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from tailrace.amount import format_amount
from tailrace.clock import SystemClock
from tailrace.hub.hub import Hub
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.explanation import Fact
from tailrace.operations.plan import ChangePlan
from tailrace.operations.subscription.next_generation import fed_text, phase_text
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.awaiting import await_generation
from tailrace.subscription.store.generations.plan import ShardsPlan
from tailrace.subscription.store.generations.waiting import (
    WaitedFor,
    next_generation,
    waited_for,
)


@dataclass(frozen=True, slots=True)
class ReshardReport:
    """A change of the number of shards. `done` is False if it is still under way, and waits for
    storage topics. `generation` is the present one."""

    subscription: str
    before: int
    shards: int
    done: bool
    generation: int
    waits_for: tuple[WaitedFor, ...]


def plan_reshard(hub: Hub, name: str, shards: int, *, uneven: bool = False) -> ChangePlan:
    """Return the plan of `reshard`. Raise `InvalidValue` for a number that is not possible, and
    `Busy` while another change is under way."""
    subscription = hub.subscription(name)
    plan = subscription.plan_shards(shards, uneven=uneven)
    asked = subscription.definition.change
    if plan.shards == plan.before:
        if asked is None:
            return ChangePlan(name, False, f"{name} has {format_amount(shards, 'shard')} already")
        return ChangePlan(name, True, f"{name}: take back the change to {asked.shards} shards")
    summary = f"{name}: {plan.before} -> {format_amount(shards, 'shard')}"
    return ChangePlan(name, True, summary, tuple(_facts(plan)))


def reshard(
    hub: Hub,
    name: str,
    shards: int,
    *,
    uneven: bool = False,
    wait: timedelta | None = None,
    reason: str = "",
    watch: Callable[[str], None] = lambda text: None,
) -> ReshardReport:
    """Change the number of shards, and wait until it is done, at most for so long.

    `watch` is called with what it waits for. Interrupted, the change goes on.
    """
    subscription = hub.subscription(name)
    before = subscription.definition
    entry = audit_entry(
        "subscription reshard",
        name,
        before={"shards": before.shards, "generation": before.generation},
        after={"shards": shards, "done": f"asked for {format_amount(shards, 'shard')}"},
        reason=reason,
    )
    done = subscription.change_shards(shards, uneven=uneven)
    append_audit(hub, entry)
    if not done:
        done = await_generation(
            hub.backend,
            name,
            SystemClock(),
            None if wait is None else wait.total_seconds(),
            lambda stored: watch(_progress_text(hub, stored)),
        )
    stored = subscription.describe()
    waits_for = () if stored.following is None else stored.following.waits_for
    return ReshardReport(name, before.shards, shards, done, stored.generation, waits_for)


def _progress_text(hub: Hub, stored: StoredSubscription) -> str:
    following = next_generation(stored)
    assert following is not None
    assert stored.definition.phase is not None
    waits_for = waited_for(hub.backend, stored, following)
    return f"{stored.name}: {phase_text(stored.definition.phase, waits_for)}"


def _facts(plan: ShardsPlan) -> Iterator[Fact]:
    begins = "now"
    if plan.waits_for:
        waits = ", ".join(
            f"{each} is finished ({format_amount(each.messages, 'message')} to acknowledge)"
            for each in plan.waits_for
        )
        begins = f"when {waits}; until then the present shards work on"
    yield Fact("begins", begins)
    yield Fact("keys", f"{plan.moved:.0%} get another shard")
    added = [f"{each.queue.name} {each.partitions}" for each in plan.adds]
    if added:
        yield Fact("adds", f"storage topics, with partitions: {', '.join(added)}")
    for each in plan.feeds:
        yield Fact("feeds", f"{fed_text(each)}; deliveries continue from there")
    if not (added or plan.feeds):
        yield Fact("queues", "RQ and DLQ stay as they are")
    yield Fact("workers", "finish the calls in flight, then continue with the new shards")
    yield Fact("undo", f"tailrace subscription reshard {plan.subscription} {plan.before}")
