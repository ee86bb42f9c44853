"""Offset resets of a subscription by an operator, with their plans.

The steps of a reset write its audit line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import Fact
from tailrace.operations.plan import ChangePlan
from tailrace.subscription.store.describe import SubscriptionInfo, describe
from tailrace.subscription.store.reset.plan import PartitionReset, ResetPlan

SHOWN_MAX: Final = 12
"""The number of partitions that the text of a plan lists."""

_NAMES: Final = {"rq": "RQ", "dlq": "DLQ"}


def plan_reset(hub: Hub, name: str, to: str, *, queue: str = "mq") -> ChangePlan:
    """Return the plan of `reset`."""
    plan = hub.subscription(name).plan_reset(to, queue=queue)
    return _change_plan(plan, describe(hub.backend, name))


def reset(hub: Hub, name: str, to: str, *, queue: str = "mq", reason: str = "") -> ChangePlan:
    """Reset a subscription. Return the plan that was applied."""
    info = describe(hub.backend, name)
    return _change_plan(hub.subscription(name).reset(to, queue=queue, reason=reason), info)


def _change_plan(plan: ResetPlan, info: SubscriptionInfo) -> ChangePlan:
    name, of = plan.subscription, _NAMES.get(plan.queue, info.topic)
    if not (plan.changes or info.workers):
        summary = f"{name}: {of} is at {plan.target} already: nothing to do"
        return ChangePlan(name, False, summary)
    facts = (*_consequences(plan, info), *_partitions(plan.partitions))
    summary = f"{name}: reset {of} to {plan.target}"
    return ChangePlan(name, True, summary, facts, tuple(plan.partitions))


def _consequences(plan: ResetPlan, info: SubscriptionInfo) -> Iterator[Fact]:
    if plan.again:
        again = format_amount(plan.again, "message")
        yield Fact("delivered", f"{again} once more, with ids that end in +r{plan.number}")
    if plan.passed:
        what = "dead letter" if plan.queue == "dlq" else "message"
        yield Fact("not delivered", f"{format_amount(plan.passed, what)}; their keys continue")
    if plan.queue == "mq" and (info.backlog.rq or info.backlog.dlq):
        rq, dlq = format_amount(info.backlog.rq, "message"), info.backlog.dlq
        kept = f"{rq} in RQ and {dlq:,} in DLQ; messages of their keys come behind them"
        yield Fact("kept", kept)
    if info.workers:
        running = format_amount(len(info.workers), "running worker")
        yield Fact("workers", f"{running} continue there; calls in flight may repeat")
    undo = "none; what is passed over is not read again"
    yield Fact("undo", undo if plan.queue != "mq" else "another reset")


def _partitions(moved: tuple[PartitionReset, ...]) -> Iterator[Fact]:
    changed = [each for each in moved if each.again or each.passed]
    for each in changed[:SHOWN_MAX]:
        counts = [f"{each.again:,} again"] * bool(each.again)
        counts += [f"{each.passed:,} passed over"] * bool(each.passed)
        yield Fact(str(each.partition), f"{each.before} -> {each.mark}, {', '.join(counts)}")
    if len(changed) > SHOWN_MAX:
        yield Fact("...", f"{len(changed) - SHOWN_MAX:,} more partitions")
