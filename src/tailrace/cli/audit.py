"""`tailrace audit`: the manual changes of a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import count_option
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.topic.audit_log import AuditEntry


@verb(
    "audit",
    examples="""
    tailrace audit
    tailrace audit --target lake/crm -n 5
    tailrace audit -o json
    """,
)
@click.option(
    "--target", metavar="NAME", help="Show only changes of this target, such as lake/crm."
)
@count_option(20)
@click.pass_obj
def audit_command(context: CommandContext, target: str | None, count: int) -> None:
    """Show manual changes: who made them and why, newest last."""
    from tailrace.operations.audit import read_audit

    with context.open_hub() as hub:
        context.show_stored(read_audit(hub, target, count), _audit_table)


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
                entry.after.get("done", ""),
                entry.reason,
            )
            for entry in entries
        ),
    )
