"""`tailrace hub`: the hub itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.tables import facts, format_time, size

if TYPE_CHECKING:
    from tailrace.operations.hub_info import AcceptedGaps, HubSummary


@verb(
    "info",
    examples="""
    tailrace hub info
    tailrace hub info --hub ./data -o json
    """,
)
@click.pass_obj
def info(context: CommandContext) -> None:
    """Show the identity, contents and disk use of a hub."""
    from tailrace.operations.hub_info import hub_info

    with context.open_hub() as hub:
        context.show(hub_info(hub), _hub_text)


@verb(
    "accept-gaps",
    examples="""
    tailrace hub accept-gaps
    """,
)
@click.pass_obj
def accept_gaps(context: CommandContext) -> None:
    """Accept the gaps that a crash of the machine left.

    `status` no longer reports them.
    """
    from tailrace.operations import hub_info

    with context.open_hub() as hub:
        context.show(hub_info.accept_gaps(hub), _gaps_text)


def _gaps_text(accepted: AcceptedGaps) -> str:
    return "\n".join(accepted.gaps) or "no gaps"


def _hub_text(hub: HubSummary) -> str:
    sync = {
        "batch": "on disk when acknowledged",
        "none": "a crash of the machine may lose messages",
    }
    lines: list[tuple[str, object]] = [("hub", hub.path)]
    if hub.sync is not None and hub.created is not None:
        lines += [
            ("id", hub.hub_id),
            ("format", hub.format),
            ("sync", f"{hub.sync} ({sync[hub.sync]})"),
            ("incarnation", hub.incarnation),
            ("created", format_time(hub.created)),
        ]
    lines += [
        ("topics", hub.topics),
        ("messages", f"{hub.messages:,} ({size(hub.bytes)})"),
        ("internal messages", f"{hub.internal_messages:,} ({size(hub.internal_bytes)})"),
    ]
    if hub.database_bytes is not None and hub.wal_bytes is not None:
        database = f"{size(hub.database_bytes)}, write-ahead log {size(hub.wal_bytes)}"
        lines.append(("database", database))
    if hub.disk_free_bytes is not None:
        lines.append(("disk", f"{hub.disk_percent} % full, {size(hub.disk_free_bytes)} free"))
    return facts(lines)


hub_command = Noun("hub", [info, accept_gaps], help="Inspect the hub itself.")
