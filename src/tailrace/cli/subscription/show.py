"""`tailrace subscription`: list subscriptions, show one, and show its history."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import count_option, subscription_argument
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.group.group import history_table
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import facts, format_time, table

if TYPE_CHECKING:
    from tailrace.operations.subscription.describe import (
        BlockedKeySummary,
        ShardSummary,
        SubscriptionDetail,
        SubscriptionSummary,
    )
    from tailrace.operations.subscription.settings import SubscriptionSettings


@verb(
    "list",
    examples="""
    tailrace subscription list
    tailrace subscription list --watch
    tailrace subscription list -o json
    """,
)
@watches
@click.pass_obj
def list_(context: CommandContext, watch: bool) -> None:
    """List all subscriptions.

    MQ counts the messages of the topic that are not delivered yet, RQ those that failed or wait
    behind one of their key that failed, DLQ the dead letters and what waits behind them. Queues are
    not listed: see tailrace queue list.
    """
    from tailrace.operations.subscription.describe import list_subscriptions

    with context.open_hub() as hub:
        show_once_or_watch(
            lambda: context.show(list_subscriptions(hub), _subscriptions_table), watch=watch
        )


def _subscriptions_table(subscriptions: list[SubscriptionSummary]) -> str:
    if not subscriptions:
        return "no subscriptions; create one: tailrace subscription create NAME --topic TOPIC"
    return table(
        ("subscription", "topic", "state", "workers", "shards", "MQ", "RQ", "DLQ", "blocked keys"),
        (
            (
                s.name,
                _topic(s),
                s.state.value,
                s.workers,
                s.shards,
                s.mq,
                s.rq,
                s.dlq,
                s.blocked_keys,
            )
            for s in subscriptions
        ),
    )


def _topic(summary: SubscriptionSummary) -> str:
    return f"{summary.topic} (deleted)" if summary.topic_deleted else summary.topic


@verb(
    "show",
    examples="""
    tailrace subscription show mailer
    tailrace subscription show mailer --watch
    """,
)
@subscription_argument
@watches
@click.pass_obj
def show(context: CommandContext, subscription: str, watch: bool) -> None:
    """Show a subscription: its settings, workers and shards.

    Keys that a dead letter blocks are listed, the oldest first.
    """
    from tailrace.operations.subscription.describe import show_subscription

    with context.open_hub() as hub:
        show_once_or_watch(
            lambda: context.show(show_subscription(hub, subscription), _subscription_text),
            watch=watch,
        )


def _subscription_text(found: SubscriptionDetail) -> str:
    from tailrace.operations.subscription.next_generation import fed_text

    summary, settings = found.summary, found.settings
    since = "" if found.since is None else f" since {format_time(found.since)}"
    pairs = [
        ("queue" if summary.queue else "subscription", summary.name),
        ("topic", _topic(summary)),
        ("state", f"{summary.state}{since}: {found.why}"),
        *_endpoint(settings),
        ("retry", _retry(settings)),
        ("on dead letter", settings.on_dead_letter),
        ("filter", settings.filter or "none"),
        ("concurrency", _concurrency(settings)),
        ("breaker", settings.breaker),
        ("throttle", settings.throttle),
        ("start", settings.start),
        ("created", format_time(found.created)),
    ]
    if found.generation:
        pairs.append(("generation", f"{found.generation}"))
    if found.changes:
        pairs.append(("changes", found.changes))
    pairs += [("feeds", fed_text(each)) for each in found.fed]
    if found.oldest is not None:
        pairs.append(("oldest message", format_time(found.oldest)))
    if found.requests:
        pairs.append(("requests", f"{found.requests:,} pending"))
    parts = [facts(pairs), _workers(found)]
    if found.shards:
        parts.append(shards_table(found.shards))
    return "\n\n".join([*parts, *_blocked(found)])


def _retry(settings: SubscriptionSettings) -> str:
    attempts = "no last attempt"
    if settings.attempts is not None:
        attempts = format_amount(settings.attempts, "attempt")
    return f"{attempts}, first delay {settings.first_delay}, max delay {settings.max_delay}"


def _concurrency(settings: SubscriptionSettings) -> str:
    total = settings.concurrency_total
    return "that of each worker" if total == "off" else f"{total} calls at a time in all workers"


def _endpoint(settings: SubscriptionSettings) -> Iterator[tuple[str, str]]:
    """Yield the endpoint and its options."""
    found = settings.endpoint
    if found is None:
        return
    yield "endpoint", found.endpoint
    yield "timeout", found.timeout
    yield "secret", found.secret or "none, deliveries are not signed"
    yield "private addresses", "allowed" if found.allow_private else "refused"
    if found.retry_statuses:
        yield "retried statuses", ", ".join(map(str, found.retry_statuses))


def _workers(found: SubscriptionDetail) -> str:
    if not found.workers:
        run = f"tailrace subscription run {found.summary.name}"
        if found.settings.endpoint is not None:
            return f"no worker runs; start one: {run}"
        run += " MODULE:FUNCTION"
        return f"no worker runs; start the app of the subscription, or: {run}"
    text = table(
        ("worker", "process", "since", "last heartbeat", "shards"),
        (
            (
                each.id,
                each.process,
                format_time(each.since),
                f"{each.silent_s:.0f} s ago",
                ", ".join(map(str, each.shards)) or "none",
            )
            for each in found.workers
        ),
    )
    standby = sum(not each.shards for each in found.workers)
    if standby and len(found.workers) > found.summary.shards:
        shards = format_amount(found.summary.shards, "shard")
        text += f"\n{format_amount(standby, 'worker')} on standby: {shards}"
    return text


def shards_table(shards: Iterable[ShardSummary]) -> str:
    """Return a table of shards with their owners and messages."""
    return table(
        ("shard", "owner", "epoch", "MQ", "RQ", "DLQ"),
        (
            (each.shard, each.owner or "none", each.epoch or "", each.mq, each.rq, each.dlq)
            for each in shards
        ),
    )


def _blocked(found: SubscriptionDetail) -> Iterator[str]:
    """Yield a table of blocked keys, and the commands that help."""
    name = found.summary.name
    if found.blocked:
        yield table(
            ("blocked key", "dead letter", "since", "attempts", "behind it", "last error"),
            map(_blocked_row, found.blocked),
        )
        more = found.summary.blocked_keys - len(found.blocked)
        lines = [f"and {format_amount(more, 'more key')}"] if more > 0 else []
        lines += ["to see what helps:"]
        lines += [
            f"  tailrace explain {name} --key {shlex.quote(each.key)}" for each in found.blocked[:1]
        ]
        yield "\n".join([*lines, f"  tailrace dlq {name} list --by error"])


def _blocked_row(each: BlockedKeySummary) -> tuple[object, ...]:
    error = next(iter(each.error.splitlines()), "")
    return each.key, each.letter, format_time(each.since), each.attempts, each.behind, error


@verb(
    "history",
    examples="""
    tailrace subscription history mailer
    tailrace subscription history mailer -n 1000 -o json
    """,
)
@subscription_argument
@count_option(100)
@click.pass_obj
def history(context: CommandContext, subscription: str, count: int) -> None:
    """Show the events of a subscription's workers, newest last.

    Events are joins, leaves, grants and revocations of shards, terms, pauses and their ends.
    """
    from tailrace.operations.subscription.describe import read_events

    with context.open_hub() as hub:
        events = read_events(hub, subscription, count)
        context.show(events, lambda lines: history_table(lines, unit="shard", member="worker"))
