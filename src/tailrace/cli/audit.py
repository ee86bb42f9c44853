"""`tailrace audit`: the manual changes of a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.arguments import count_option
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.operations.audit import DiscardedMessage
    from tailrace.topic.audit_log import AuditEntry

_SHOWN_MAX: Final = 3
"""The number of discarded messages that the row of a change names."""


@verb(
    "audit",
    examples="""
    tailrace audit
    tailrace audit --target lake/crm -n 5
    tailrace audit --discarded --target mailer
    tailrace audit -o json
    """,
)
@click.option(
    "--target", metavar="NAME", help="Show only changes of this target, such as lake/crm."
)
@click.option(
    "--discarded", is_flag=True, help="List the messages that were discarded, one in each row."
)
@count_option(20)
@click.pass_obj
def audit_command(context: CommandContext, target: str | None, discarded: bool, count: int) -> None:
    """Show manual changes: who made them and why, newest last.

    A discard of dead letters names its messages: the first 100.
    """
    from tailrace.operations.audit import read_audit, read_discarded

    with context.open_hub() as hub:
        if discarded:
            context.show_stored(read_discarded(hub, target, count), _discarded_table)
        else:
            context.show_stored(read_audit(hub, target, count), _audit_table)


def _discarded_table(messages: list[DiscardedMessage]) -> str:
    if not messages:
        return "no discarded messages"
    return table(
        ("time", "who", "consumer", "message", "key", "reason"),
        (
            (format_time(each.time), each.who, each.consumer, each.message, each.key, each.reason)
            for each in messages
        ),
    )


def _audit_table(entries: list[AuditEntry]) -> str:
    if not entries:
        return "no manual changes"
    return table(
        ("time", "who", "command", "target", "change", "reason"),
        (
            (
                format_time(entry.time),
                f"{entry.who} ({entry.pid})",
                entry.command,
                entry.target,
                _change_text(entry),
                entry.reason,
            )
            for entry in entries
        ),
    )


def _change_text(entry: AuditEntry) -> str:
    done = str(entry.after.get("done", ""))
    named = [each["message"] for each in entry.after.get("discarded", ())]
    if not named:
        return done
    more = ", …" if len(named) > _SHOWN_MAX else ""
    return f"{done}: {', '.join(named[:_SHOWN_MAX])}{more}"
