"""Changes of a queue by an operator. Every one is audited, except a rebalance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.explanation import Fact
from tailrace.operations.plan import ChangePlan
from tailrace.operations.subscription.health import lag_of
from tailrace.operations.subscription.pause import PauseReport, resume
from tailrace.operations.subscription.pause import pause as pause_subscription
from tailrace.queue.lifecycle import read_queue
from tailrace.queue.rebalance import ShardMove
from tailrace.subscription.store.describe import describe


@dataclass(frozen=True, slots=True)
class RebalanceReport:
    """The shards of each consumer, and those that moved. `balanced` is False if the consumers had
    unequal shares after the timeout."""

    queue: str
    balanced: bool
    consumers: dict[str, tuple[int, ...]]
    moves: tuple[ShardMove, ...]


def pause(
    hub: Hub,
    name: str,
    reason: str,
    *,
    drain: bool = False,
    timeout: timedelta | str | None = None,
) -> PauseReport:
    """Pause a queue, and with `drain` wait until nothing of it is in flight. Raise
    `UnknownQueue`."""
    read_queue(hub.backend, name)
    report = pause_subscription(hub, name, reason)
    if not drain:
        return report
    quiet = hub.queue(name, strict=True).pause(reason, drain=True, timeout=timeout)
    return replace(report, quiet=quiet)


def play(hub: Hub, name: str, reason: str = "") -> PauseReport:
    """End the pause of a queue. The report has the pause that ended. Raise `UnknownQueue`."""
    read_queue(hub.backend, name)
    return resume(hub, name, reason)


def rebalance(hub: Hub, name: str, *, timeout: timedelta | str = "10s") -> RebalanceReport:
    """Wait until the shards of a queue are divided evenly among its consumers."""
    done = hub.queue(name, strict=True).rebalance(timeout=timeout)
    return RebalanceReport(name, done.balanced, done.shards, done.moves)


def plan_delete(hub: Hub, name: str) -> ChangePlan:
    """Return the plan of `delete`. Raise `UnknownQueue` if there is none."""
    read_queue(hub.backend, name)
    info = describe(hub.backend, name)
    facts = []
    if info.workers:
        running = format_amount(len(info.workers), "running consumer")
        again = "an app that declares it, or hub.queue, creates it again, empty"
        facts += [Fact("stops", f"{running}, with an error"), Fact("created", again)]
    if lag := lag_of(info):
        facts.append(Fact("not handled", format_amount(lag, "message")))
    if info.backlog.dlq:
        facts.append(Fact("not handled", format_amount(info.backlog.dlq, "dead letter")))
    facts.append(Fact("undo", "none; the messages are deleted, also for other consumers of them"))
    summary = f"{name}: delete the queue with its messages, its dead letters and its progress"
    return ChangePlan(name, True, summary, tuple(facts))


def delete(hub: Hub, name: str, reason: str = "") -> ChangePlan:
    """Delete a queue. Return the plan that was applied."""
    plan = plan_delete(hub, name)
    backlog = describe(hub.backend, name).backlog
    before = {"mq": backlog.mq, "rq": backlog.rq, "dlq": backlog.dlq}
    hub.delete_queue(name)
    after = {"done": "deleted"}
    append_audit(hub, audit_entry("queue delete", name, before=before, after=after, reason=reason))
    return plan
