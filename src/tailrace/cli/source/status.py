"""`tailrace source status`: the tasks of sources, and how far their namespaces are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import complete_source
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.operations.source.status import SourceStatus


@verb(
    "status",
    examples="""
    tailrace source status
    tailrace source status shop --watch
    tailrace source status shop -o json
    """,
)
@click.argument("name", required=False, shell_complete=complete_source)
@watches
@click.pass_obj
def status(context: CommandContext, name: str | None, watch: bool) -> None:
    """Show the state, tasks and progress of sources.

    For a namespace that is copied: its rows, about how many there are, and with --watch the rate.
    For one that is followed: about how many rows are there and were not read, if the reader can
    tell.
    """
    from tailrace.operations.source.status import SourceStatusWatch

    with context.open_hub() as hub:
        found = SourceStatusWatch(hub)
        show_once_or_watch(lambda: context.show(found.look(name), _status_text), watch=watch)


def _status_text(found: list[SourceStatus]) -> str:
    if not found:
        return "no sources; run one: tailrace source run FILE"
    return "\n\n".join("\n".join(_source_lines(each)) for each in found)


def _source_lines(found: SourceStatus) -> Iterator[str]:
    from tailrace.source.display import namespace_lines

    view = found.source
    colour = "green" if found.well else "red"
    state = click.style(found.state, fg=colour)
    since = "" if found.since is None else f" since {format_time(found.since)}"
    yield f"{click.style(view.name, bold=True)}  {state}{since}: {found.why}"
    records = format_amount(view.records, "record")
    splits = f"{view.unfinished:,} of {format_amount(view.splits, 'split')} not finished"
    waits = f", {len(view.waiting):,} of them waiting" if view.waiting else ""
    yield f"  {view.reader} -> {view.commit_log}, {records}; {splits}{waits}"
    if view.unreadable:
        letters = format_amount(view.unreadable, "pending dead letter")
        yield f"  {letters}: tailrace dlq {view.name} list --by error"
    if not found.well:
        yield f"  tailrace explain {view.name}"
    yield from namespace_lines(view.namespaces)
    if view.tasks:
        yield table(
            ("task", "process", "since", "units", "reading", "last heartbeat", ""),
            (
                (
                    each.id,
                    each.process or "died",
                    format_time(each.since),
                    each.units,
                    each.reading,
                    "" if each.process is None else f"{each.silent_s:.0f} s ago",
                    "leader" if each.leads else "",
                )
                for each in view.tasks
            ),
        )
