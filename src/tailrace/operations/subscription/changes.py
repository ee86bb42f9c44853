"""Changes of a subscription by an operator. Every one is audited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.explanation import Fact
from tailrace.operations.plan import ChangePlan
from tailrace.operations.subscription.health import lag_of
from tailrace.operations.subscription.load_options import LoadTexts, parse_load_texts
from tailrace.operations.subscription.settings import (
    SubscriptionSettings,
    parse_retry,
    parse_statuses,
)
from tailrace.subscription.store.describe import SubscriptionInfo, describe
from tailrace.subscription.store.lifecycle import delete_subscription, deletion_interrupted


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """The settings of a subscription before and after a change."""

    subscription: str
    before: SubscriptionSettings
    after: SubscriptionSettings

    @property
    def changed(self) -> bool:
        """True if a setting is another one now."""
        return self.before != self.after


def update(
    hub: Hub,
    name: str,
    *,
    attempts: str | None = None,
    first_delay: str | None = None,
    max_delay: str | None = None,
    filter: str | None = None,
    endpoint: str | None = None,
    timeout: str | None = None,
    secret: str | None = None,
    allow_private: bool | None = None,
    retry_statuses: str | None = None,
    reason: str = "",
    **load: Unpack[LoadTexts],
) -> UpdateReport:
    """Change the retry policy, the filter, the load control and the endpoint of a subscription.

    None leaves a value as it is. An empty filter or secret removes it. Running workers follow at
    once.
    """
    subscription = hub.subscription(name)
    held = subscription.definition
    given = (attempts, first_delay, max_delay)
    retry = None if given == (None, None, None) else parse_retry(held.retry, *given)
    subscription.update(
        retry=retry,
        filter=filter,
        endpoint=endpoint,
        timeout=timeout,
        secret=secret,
        allow_private=allow_private,
        retry_statuses=parse_statuses(retry_statuses),
        **parse_load_texts(load),
    )
    before, after = (SubscriptionSettings.of(each) for each in (held, subscription.definition))
    report = UpdateReport(name, before, after)
    if report.changed:
        was, now = before.changeable, after.changeable
        changed = [option for option in now if now[option] != was[option]]
        done = ", ".join(f"{_words(option)} {_shown(now[option])}" for option in changed)
        entry = audit_entry(
            "subscription update",
            name,
            before={option: was[option] for option in changed},
            after={option: now[option] for option in changed} | {"done": f"set {done}"},
            reason=reason,
        )
        append_audit(hub, entry)
    return report


def plan_delete(hub: Hub, name: str) -> ChangePlan:
    """Return the plan of `delete`. Raise `UnknownSubscription`, unless a deletion of that name was
    interrupted."""
    undo = Fact("undo", "none; a new subscription of that name starts without progress")
    if deletion_interrupted(hub.backend, name):
        return ChangePlan(name, True, f"{name}: finish the deletion of a subscription", (undo,))
    info = describe(hub.backend, name)
    facts = []
    if info.workers:
        stopped = f"{format_amount(len(info.workers), 'running worker')}, with an error"
        again = "an app that declares it creates it again, and delivers from its start on"
        facts += [Fact("stops", stopped), Fact("created", again)]
    facts += [Fact("not delivered", each) for each in _undelivered(info)]
    if not info.topic_deleted:
        facts.append(Fact("kept", f"topic {info.topic} with its messages"))
    summary = f"{name}: delete the subscription of {info.topic}, its queues and its progress"
    return ChangePlan(name, True, summary, (*facts, undo))


def delete(hub: Hub, name: str, reason: str = "") -> ChangePlan:
    """Delete a subscription. Return the plan that was applied."""
    plan = plan_delete(hub, name)
    before: dict[str, Any] = {}
    if not deletion_interrupted(hub.backend, name):
        info = describe(hub.backend, name)
        backlog = info.backlog
        before = {"topic": info.topic, "mq": backlog.mq, "rq": backlog.rq, "dlq": backlog.dlq}
    delete_subscription(hub.backend, name)
    after = {"done": "deleted"}
    entry = audit_entry("subscription delete", name, before=before, after=after, reason=reason)
    append_audit(hub, entry)
    return plan


def _undelivered(info: SubscriptionInfo) -> Iterator[str]:
    """Yield what a deletion leaves undelivered."""
    if lag := lag_of(info):
        retried = f", of which {info.backlog.rq:,} failed before" if info.backlog.rq else ""
        yield f"{format_amount(lag, 'message')}{retried}"
    if info.backlog.dlq:
        yield format_amount(info.backlog.dlq, "dead letter")
    if info.requests:
        yield f"{format_amount(info.requests, 'request')} for dead letters"


def _words(option: str) -> str:
    return option.replace("_", " ")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
