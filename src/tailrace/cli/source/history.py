"""`tailrace source history`: joins, leaves, deaths, epochs, and units that moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import count_option, source_argument
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.tables import format_time_ms, table

if TYPE_CHECKING:
    from tailrace.operations.source.history import SourceEvent

_UNITS_MAX: Final = 3
"""Number of units that a line names."""


@verb(
    "history",
    examples="""
    tailrace source history shop
    tailrace source history shop -n 1000 -o json
    """,
)
@source_argument
@count_option(100)
@click.pass_obj
def history(context: CommandContext, source: str, count: int) -> None:
    """Show the events of a source and their reasons, newest last.

    Events are tasks that joined, left or died, a new leader task, rebalances, the epochs that ended
    them, and units that moved from one task to another.
    """
    from tailrace.operations.source.history import read_source_history

    with context.open_hub() as hub:
        context.show(read_source_history(hub, source, count), _events_table)


def _events_table(events: list[SourceEvent]) -> str:
    if not events:
        return "no events yet"
    return table(
        ("time", "event", "task", "generation", ""),
        (
            (
                format_time_ms(each.time),
                each.event.value,
                each.task,
                each.generation or "",
                _what(each),
            )
            for each in events
        ),
    )


def _what(event: SourceEvent) -> str:
    if not event.moved:
        return event.why
    named = event.units[:_UNITS_MAX]
    more = event.moved - len(named)
    names = ", ".join(named) + (f" and {more:,} more" if more else "")
    return f"{format_amount(event.moved, 'unit')} from {event.before}: {names}"
