"""`tailrace group`: inspect and change consumer groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import count_option, group_argument
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.cli.group.changes import delete, seek, skip
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import facts, format_time, format_time_ms, table

if TYPE_CHECKING:
    from tailrace.group.store.describe import GroupDetail, GroupPartition, GroupSummary
    from tailrace.group.store.failed_messages import FailedMessage
    from tailrace.group.store.history import HistoryLine


@verb(
    "list",
    examples="""
    tailrace group list
    tailrace group list -o json
    """,
)
@watches
@click.pass_obj
def list_(context: CommandContext, watch: bool) -> None:
    """List all groups."""
    from tailrace.group.store.describe import list_groups

    with context.open_hub() as hub:
        show_once_or_watch(
            lambda: context.show(list_groups(hub.backend), _groups_table), watch=watch
        )


def _groups_table(groups: list[GroupSummary]) -> str:
    if not groups:
        return "no groups; create one by consuming: tailrace tail TOPIC --group NAME"
    return table(
        ("group", "topics", "consumers", "standby", "open", "waiting", "lag"),
        (
            (g.name, _topics(g), g.consumers, g.standing_by, g.open, g.waiting, g.lag)
            for g in groups
        ),
    )


def _topics(group: GroupSummary) -> str:
    return f"{group.filter} (deleted)" if group.topic_deleted else group.filter


@verb(
    "show",
    examples="""
    tailrace group show billing
    tailrace group show billing --watch
    """,
)
@group_argument
@watches
@click.pass_obj
def show(context: CommandContext, group: str, watch: bool) -> None:
    """Show a group: its leader, consumers and partitions.

    Messages that failed and block their keys are listed, also while they are retried. "behind it"
    counts the messages of the same key that the consumer has read, and the lag of the partitions
    that cannot start before this one is finished.
    """
    from tailrace.group.store.describe import show_group
    from tailrace.operations.group.lookup import check_group

    with context.open_hub() as hub:
        check_group(hub, group)
        show_once_or_watch(
            lambda: context.show(show_group(hub.backend, group), _group_text), watch=watch
        )


def _group_text(group: GroupDetail) -> str:
    summary = group.summary
    head = facts(
        [
            ("group", summary.name),
            ("topics", _topics(summary)),
            ("start", group.start),
            ("created", format_time(group.created)),
            ("leader", "none" if group.leader is None else f"{group.leader}, term {group.term}"),
            ("lag", summary.lag),
        ]
    )
    consumers = "no consumer runs"
    if group.consumers:
        consumers = table(
            ("consumer", "process", "since", "last heartbeat"),
            (
                (c.id, c.process, format_time(c.since), f"{c.silent_s:.0f} s ago")
                for c in group.consumers
            ),
        )
        if summary.standing_by:
            standby = format_amount(summary.standing_by, "consumer")
            consumers += f"\n{standby} on standby: {_open(summary.open)}"
    partitions = table(
        ("partition", "state", "acknowledged", "end", "lag", "owner", "epoch"),
        (
            (p.partition, p.state.value, p.mark, p.end, p.lag, p.owner or "", p.epoch or "")
            for p in group.partitions
        ),
    )
    return "\n\n".join([head, consumers, partitions, *_failed(group)])


def _open(count: int) -> str:
    return "1 partition is open" if count == 1 else f"{count:,} partitions are open"


def _failed(group: GroupDetail) -> Iterator[str]:
    """Yield a table of the messages that block their keys, and the commands that skip them."""
    from tailrace.operations.group.stuck import count_behind, name_failed, skip_command

    found = [(each, partition) for partition in group.partitions for each in partition.failed]
    if found:
        yield table(
            ("failed message", "failed", "since", "next attempt", "behind it", "last error"),
            (
                (
                    name_failed(each),
                    format_amount(each.attempts, "time"),
                    format_time(each.time),
                    _next_attempt(each, partition),
                    count_behind(each, partition),
                    next(iter(each.error.splitlines()), ""),
                )
                for each, partition in found
            ),
        )
        skips = [skip_command(group.summary.name, each) for each, _ in found]
        yield "\n".join(["to skip a message:", *(f"  {command}" for command in skips)])


def _next_attempt(failed: FailedMessage, partition: GroupPartition) -> str:
    if failed.next_attempt is not None:
        return format_time(failed.next_attempt)
    return "none: no owner" if partition.owner is None else "none: stuck"


@verb(
    "history",
    examples="""
    tailrace group history billing
    tailrace group history billing -n 1000 -o json
    """,
)
@group_argument
@count_option(100)
@click.pass_obj
def history(context: CommandContext, group: str, count: int) -> None:
    """Show the events of a group and their reasons, newest last.

    Events are joins, leaves, grants, revocations, terms, failures, seeks and skips.
    """
    from tailrace.group.store.history import read_history
    from tailrace.operations.group.lookup import check_group

    with context.open_hub() as hub:
        check_group(hub, group)
        context.show(read_history(hub.backend, group, count), history_table)


def history_table(
    lines: list[HistoryLine], unit: str = "partition", member: str = "consumer"
) -> str:
    """Return a table of events. `unit` and `member` name what is owned, and the owners."""
    if not lines:
        return "no events yet"
    return table(
        ("time", "event", unit, "epoch", member, "reason"),
        (
            (
                format_time_ms(each.time),
                each.what,
                each.partition,
                each.epoch or "",
                each.consumer,
                _reason(each),
            )
            for each in lines
        ),
    )


def _reason(line: HistoryLine) -> str:
    return f"{line.process} leads" if line.what == "term" else line.why


group_command = Noun(
    "group",
    [list_, show, seek, skip, history, delete],
    help="Inspect, move and delete consumer groups.",
)
