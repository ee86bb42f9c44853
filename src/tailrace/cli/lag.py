"""`tailrace lag`: the lag of groups, subscriptions and queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import complete_lagging
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.subscription.show import shards_table
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.group.store.describe import GroupSummary, PartitionLag
    from tailrace.operations.subscription.describe import ShardSummary, SubscriptionSummary


@verb(
    "lag",
    examples="""
    tailrace lag
    tailrace lag billing
    tailrace lag billing --watch
    tailrace lag mailer
    """,
)
@click.argument(
    "consumer",
    required=False,
    metavar="[GROUP|SUBSCRIPTION|QUEUE]",
    shell_complete=complete_lagging,
)
@watches
@click.pass_obj
def lag_command(context: CommandContext, consumer: str | None, watch: bool) -> None:
    """Show the lag of groups, subscriptions and queues, or of one.

    The lag of a group is the number of offsets up to the end of each partition that are not
    acknowledged. Gaps between offsets count. The lag of a subscription or queue is the number of
    messages to deliver: those of the topic (MQ) and those of its retry queue (RQ). If a group has
    the same name, write group:NAME or subscription:NAME.
    """
    from tailrace.operations.lag import lag_of_consumer, list_lags

    with context.open_hub() as hub:

        def show() -> None:
            if consumer is None:
                context.show(list_lags(hub), _lags_text)
            else:
                context.show(lag_of_consumer(hub, consumer), _lag_text)

        show_once_or_watch(show, watch=watch)


def _lags_text(lags: list[GroupSummary | SubscriptionSummary]) -> str:
    from tailrace.group.store.describe import GroupSummary

    ordered = sorted(lags, key=lambda each: -each.lag)
    groups = [each for each in ordered if isinstance(each, GroupSummary)]
    others = [each for each in ordered if not isinstance(each, GroupSummary)]
    subscriptions = [each for each in others if not each.queue]
    queues = [each for each in others if each.queue]
    parts = [_groups_table(groups)] if groups else []
    if subscriptions:
        parts.append(_subscriptions_table(subscriptions))
    if queues:
        parts.append(_queues_table(queues))
    return "\n\n".join(parts) or "no groups, no subscriptions and no queues"


def _queues_table(queues: list[SubscriptionSummary]) -> str:
    return table(
        ("queue", "lag", "MQ", "RQ", "DLQ", "consumers"),
        ((each.name, each.lag, each.mq, each.rq, each.dlq, each.workers) for each in queues),
    )


def _subscriptions_table(subscriptions: list[SubscriptionSummary]) -> str:
    return table(
        ("subscription", "topic", "lag", "MQ", "RQ", "DLQ", "workers"),
        ((s.name, s.topic, s.lag, s.mq, s.rq, s.dlq, s.workers) for s in subscriptions),
    )


def _lag_text(found: list[PartitionLag] | list[ShardSummary]) -> str:
    from tailrace.group.store.describe import PartitionLag

    partitions = [each for each in found if isinstance(each, PartitionLag)]
    shards = [each for each in found if not isinstance(each, PartitionLag)]
    return shards_table(shards) if shards else _partitions_table(partitions)


def _groups_table(ordered: list[GroupSummary]) -> str:
    return table(
        ("group", "topics", "lag", "consumers", "waiting partitions"),
        ((g.name, g.filter, g.lag, g.consumers, g.waiting) for g in ordered),
    )


def _partitions_table(partitions: list[PartitionLag]) -> str:
    if not partitions:
        return "no unfinished partitions"
    return table(
        ("partition", "state", "lag", "oldest message", "owner"),
        (
            (
                p.partition,
                p.state.value,
                p.lag,
                "" if p.oldest is None else format_time(p.oldest),
                p.owner or "none",
            )
            for p in partitions
        ),
    )
