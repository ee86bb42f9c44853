"""`tailrace lag`: the lag of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import complete_group
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.group.store.describe import GroupSummary, PartitionLag


@verb(
    "lag",
    examples="""
    tailrace lag
    tailrace lag billing
    tailrace lag billing --watch
    """,
)
@click.argument("group", required=False, shell_complete=complete_group)
@watches
@click.pass_obj
def lag_command(context: CommandContext, group: str | None, watch: bool) -> None:
    """Show the lag of every group, or of one group by partition.

    The lag is the number of offsets up to the end of the partition that are not acknowledged. Gaps
    between offsets count.
    """
    from tailrace.group.store.describe import lag, list_groups

    with context.open_hub() as hub:

        def show() -> None:
            if group is None:
                context.show(list_groups(hub.backend), _groups_table)
            else:
                context.show(lag(hub.backend, group), _partitions_table)

        show_once_or_watch(show, watch=watch)


def _groups_table(groups: list[GroupSummary]) -> str:
    if not groups:
        return "no groups"
    ordered = sorted(groups, key=lambda group: -group.lag)
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
