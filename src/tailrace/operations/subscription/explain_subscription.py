"""A subscription explained: its state, what waits, its workers, what is blocked, what helps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.duration import format_duration
from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import ExplainedPart, Explanation, Fact, Remedy
from tailrace.operations.health import time_text
from tailrace.operations.queue.accounting import read_accounts
from tailrace.operations.subscription.explain_key import attempts_text, owner_fact, run_remedy
from tailrace.operations.subscription.health import (
    SubscriptionState,
    blocked_text,
    held_back_text,
    judge,
    lag_of,
    requests_text,
    resume_command,
    silence_text,
    silent_workers,
    worker_word,
)
from tailrace.operations.subscription.next_generation import change_text, fed_text
from tailrace.subscription.endpoint.definition import Endpoint
from tailrace.subscription.store.backlog import BlockedKey
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.describe import SubscriptionInfo, describe
from tailrace.subscription.store.differences import describe_retry
from tailrace.subscription.store.generations.opening import as_opened
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.names import ShardName

LISTED_MAX: Final = 5
"""Number of blocked keys and of workers that are listed."""


def explain_subscription(hub: Hub, name: str) -> Explanation:
    """Explain a subscription, or a queue by its consumer. Raise `UnknownSubscription` if there is
    none."""
    info = describe(hub.backend, name)
    health = judge(hub, info)
    facts = [*_settings(info), *_waiting(info), *_workers(hub, info)]
    facts += [*_problems(info, health.state), *blocked_facts(info)]
    if info.queue and not info.topic_deleted:
        facts.append(Fact("counts", read_accounts(hub, name).text))
    remedies = tuple(remedies_of(info, health.state))
    return Explanation(name, health.waits, health.text, tuple(facts), remedies)


def part_of_topic(hub: Hub, info: SubscriptionInfo) -> ExplainedPart:
    """Return a subscription as a part of its topic."""
    health = judge(hub, info)
    facts = (Fact(info.name, health.text), *_problems(info, health.state), *blocked_facts(info))
    more = Remedy(info.kind, f"tailrace explain {info.name} --subscription")
    remedies = (*remedies_of(info, health.state), more)
    return ExplainedPart(info.name, health.state.value, health.waits, facts, remedies)


def explain_shard(hub: Hub, name: str, shard: ShardName) -> Explanation:
    """Explain a shard. Raise `InvalidValue` if the subscription has no such shard."""
    info = describe(hub.backend, name)
    if shard.generation != info.generation or shard.shard >= info.shards:
        valid = f"{name}/{info.generation}.0 to {name}/{info.generation}.{info.shards - 1}"
        raise InvalidValue("shard", f"{name}/{shard}", valid)
    stored = as_opened(read_subscription(hub.backend, name))
    waiting, owner = info.backlog.shards[shard.shard], info.owners[shard.shard]
    waits = bool(waiting.mq or waiting.rq)
    state = "IDLE"
    if owner is not None:
        state = "DELIVERING" if waits else "CAUGHT UP"
    elif waits:
        state = "UNATTENDED"
    if info.paused is not None:
        state = "PAUSED"
    counts = f"{waiting.mq:,} in MQ, {waiting.rq:,} in RQ, {waiting.dlq:,} in DLQ"
    facts = [
        Fact("waiting", counts),
        owner_fact(hub, shard.shard, owner),
        Fact("partitions", ", ".join(_partitions(stored, shard.shard))),
    ]
    remedies = (Remedy("subscription", f"tailrace explain {name}"),)
    headline = f"{state}: shard {shard.shard} of {name}"
    return Explanation(f"{name}/{shard}", waits, headline, tuple(facts), remedies)


def _partitions(stored: StoredSubscription, shard: int) -> list[str]:
    """Return the partitions of the topic that a shard has."""
    return list(map(str, stored.streams(shard).mq))


def blocked_facts(info: SubscriptionInfo) -> Iterator[Fact]:
    """Yield the keys that dead letters block, the oldest first."""
    for each in info.backlog.blocked[:LISTED_MAX]:
        yield Fact("blocked", _blocked_key(each))
    if (more := info.backlog.blocked_keys - LISTED_MAX) > 0:
        yield Fact("blocked", format_amount(more, "more key"))


def _blocked_key(blocked: BlockedKey) -> str:
    head = blocked.head
    failed = f", {attempts_text(head)}" if head.attempts else ""
    text = f"since {time_text(head.queued)}: key {blocked.key!r} by {head.origin}{failed}"
    text += f"; {blocked.behind:,} behind it"
    return f"{text}; last error: {head.error}" if head.error else text


def remedies_of(info: SubscriptionInfo, state: SubscriptionState) -> Iterator[Remedy]:
    """Yield the commands that help a subscription in a state."""
    name, backlog = info.name, info.backlog
    if state is SubscriptionState.TOPIC_DELETED:
        yield Remedy("delete", f"tailrace {info.kind} delete {name}", "if it is not needed")
        return
    if info.paused is not None:
        yield Remedy("resume", resume_command(info), "its workers continue")
    if not info.workers and (backlog.mq or backlog.rq or backlog.blocked_keys or info.requests):
        yield run_remedy(name, info.endpoint)
    if state is SubscriptionState.SILENT:
        outcome = "names the process: resume or end it"
        yield Remedy("owner", f"tailrace subscription show {name}", outcome)
    for each in backlog.blocked[:1]:
        key = shlex.quote(each.key)
        yield Remedy("key", f"tailrace explain {name} --key {key}", "what helps this key")
    if backlog.dlq:
        errors = f"tailrace dlq {name} list --by error"
        yield Remedy("dead letters", errors, format_amount(backlog.dlq, "message") + " in DLQ")
    if state in (SubscriptionState.DELIVERING, SubscriptionState.RETRYING):
        yield Remedy("watch", f"tailrace lag {name} --watch")


def _settings(info: SubscriptionInfo) -> Iterator[Fact]:
    shards = format_amount(info.shards, "shard")
    delivers = shards if info.queue else f"{info.topic}, in {shards}"
    if info.generation:
        delivers += f" of generation {info.generation}"
    name = "queue" if info.queue else "delivers"
    yield Fact(name, f"{delivers}, on_dead_letter={info.on_dead_letter.value}")
    if info.endpoint is not None:
        yield Fact("endpoint", endpoint_text(info.endpoint))
    yield Fact("retry", describe_retry(info.retry))
    if info.filter is not None:
        yield Fact("filter", info.filter)


def endpoint_text(endpoint: Endpoint) -> str:
    """Return an endpoint with its options, without its secret."""
    text = f"{endpoint.url}, timeout {format_duration(endpoint.timeout)}"
    secret = endpoint.shown_secret
    text += ", not signed" if secret is None else f", signed by {secret}"
    if endpoint.allow_private:
        text += ", private addresses are allowed"
    if endpoint.retry_statuses:
        text += f", also retried: {', '.join(map(str, endpoint.retry_statuses))}"
    return text


def _waiting(info: SubscriptionInfo) -> Iterator[Fact]:
    backlog = info.backlog
    if info.topic_deleted:
        return
    if not lag_of(info):
        yield Fact("lag", "none: no message is to be delivered")
        return
    text = f"{backlog.mq:,} in the topic (MQ), {backlog.rq:,} in the retry queue (RQ)"
    if backlog.retrying_keys:
        text += f" of {format_amount(backlog.retrying_keys, 'key')}"
    oldest = ""
    if backlog.oldest is not None:
        with_letters = ", with those that dead letters block," if backlog.blocked_keys else ""
        oldest = f"; the oldest{with_letters} is of {time_text(backlog.oldest)}"
    yield Fact("lag", f"{text}{oldest}")


def _workers(hub: Hub, info: SubscriptionInfo) -> Iterator[Fact]:
    silent, kind = {each.id for each in silent_workers(hub, info)}, worker_word(info)
    for each in info.workers[:LISTED_MAX]:
        shards = ", ".join(map(str, each.shards))
        owned = f"owns shard{'s' * (len(each.shards) > 1)} {shards}" if shards else "stands by"
        text = f"{each.id} {owned}; {each.process}"
        if each.id in silent:
            text = f"{silence_text(each)}; {each.process} is stopped or cut off"
        yield Fact(kind, text)
    if len(info.workers) > LISTED_MAX:
        yield Fact(kind, f"{len(info.workers) - LISTED_MAX:,} more")
    if info.workers and info.unattended:
        free = ", ".join(map(str, info.unattended))
        yield Fact("free", f"shards without an owner, about to be granted: {free}")


def _problems(info: SubscriptionInfo, state: SubscriptionState) -> Iterator[Fact]:
    """Yield what is not well and is not told by the state itself."""
    backlog = info.backlog
    if backlog.blocked_keys and state is not SubscriptionState.BLOCKED:
        yield Fact("blocked", blocked_text(info))
    held = info.held_back
    if held is not None and backlog.mq and backlog.oldest is not None and held >= backlog.oldest:
        yield Fact("throttle", f"{held_back_text(info)}; last at {time_text(held)}")
    if backlog.aside:
        letters = format_amount(backlog.aside, "dead letter")
        yield Fact("set aside", f"{letters} that block{'s' * (backlog.aside == 1)} no key")
    if info.following is not None and state is not SubscriptionState.CHANGING:
        yield Fact("changes", change_text(info))
    if info.closed is not None and info.closed.waiting:
        waiting = format_amount(info.closed.waiting, "message")
        yield Fact("changes", f"{waiting} in {info.topic}/{info.closed.storage} until then")
    for each in info.fed:
        yield Fact("feeds", f"{fed_text(each)}, which are delivered from there")
    if info.requests:
        unattended = "" if info.workers else ", and no worker runs that could carry them out"
        yield Fact("requests", f"{requests_text(info)}{unattended}")
