"""`tailrace audit`: who changed what by hand, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import verb
from tailrace.cli.session import Session
from tailrace.cli.tables import moment, table

if TYPE_CHECKING:
    from tailrace.operations.audit import AuditEntry


@verb(
    "audit",
    examples="""
    tailrace audit
    tailrace audit --target lake/crm -n 5
    tailrace audit -o json
    """,
)
@click.option("--target", metavar="NAME", help="Only of this, such as lake/crm.")
@click.option(
    "-n", "--count", type=click.IntRange(min=1), default=20, show_default=True, help="How many."
)
@click.pass_obj
def audit_command(session: Session, target: str | None, count: int) -> None:
    """Show who changed what by hand, the newest last."""
    from tailrace.operations.audit import read_audit

    with session.open_hub() as hub:
        session.show(read_audit(hub, target, count), _audit_table)


def _audit_table(entries: list[AuditEntry]) -> str:
    if not entries:
        return "nothing was changed by hand"
    return table(
        ("time", "who", "command", "target", "what", "reason"),
        (
            (
                moment(entry.time),
                f"{entry.who} ({entry.pid})",
                entry.command,
                entry.target,
                entry.after.get("done", ""),
                entry.reason,
            )
            for entry in entries
        ),
    )
