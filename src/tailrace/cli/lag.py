"""`tailrace lag`: how far groups are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import verb
from tailrace.cli.group import complete_group
from tailrace.cli.session import Session
from tailrace.cli.tables import moment, table
from tailrace.cli.watching import show_once_or_watch, watches

if TYPE_CHECKING:
    from tailrace.group.view import GroupSummary, StreamLag


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
def lag_command(session: Session, group: str | None, watch: bool) -> None:
    """Say how far groups are behind, or one in each of its streams."""
    from tailrace.group.view import lag, list_groups

    with session.open_hub() as hub:

        def show() -> None:
            if group is None:
                session.show(list_groups(hub.backend), _groups_table)
            else:
                session.show(lag(hub.backend, group), _streams_table)

        show_once_or_watch(show, watch=watch)


def _groups_table(groups: list[GroupSummary]) -> str:
    if not groups:
        return "no groups"
    ordered = sorted(groups, key=lambda group: -group.behind)
    return table(
        ("group", "topics", "behind", "consumers", "streams waiting"),
        ((g.name, g.filter, g.behind, g.consumers, g.waiting) for g in ordered),
    )


def _streams_table(streams: list[StreamLag]) -> str:
    if not streams:
        return "no streams"
    return table(
        ("stream", "state", "behind", "oldest waits since", "owner"),
        (
            (
                s.partition,
                s.state.value,
                s.behind,
                "" if s.oldest is None else moment(s.oldest),
                s.owner or "nobody",
            )
            for s in streams
        ),
    )
