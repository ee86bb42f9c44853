"""`tailrace hub`: the hub itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import Noun, verb
from tailrace.cli.session import Session
from tailrace.cli.tables import facts, moment, size

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
def info(session: Session) -> None:
    """Show what a hub is, what it holds and the room it takes."""
    from tailrace.operations.hub_info import hub_info

    with session.open_hub() as hub:
        session.show(hub_info(hub), _hub_text)


@verb(
    "accept-gaps",
    examples="""
    tailrace hub accept-gaps
    """,
)
@click.pass_obj
def accept_gaps(session: Session) -> None:
    """Forget the gaps of a crash, once somebody has seen to them; `status` is well again."""
    from tailrace.operations.hub_info import accept_gaps as accept

    with session.open_hub() as hub:
        session.show(accept(hub), _gaps_text)


def _gaps_text(accepted: AcceptedGaps) -> str:
    return "\n".join(accepted.gaps) or "no gaps"


def _hub_text(hub: HubSummary) -> str:
    sync = {"batch": "on disk when acknowledged", "none": "a crash of the machine may lose some"}
    return facts(
        [
            ("hub", hub.path),
            ("id", hub.hub_id),
            ("format", hub.format),
            ("sync", f"{hub.sync} ({sync[hub.sync]})"),
            ("incarnation", hub.incarnation),
            ("created", moment(hub.created)),
            ("topics", hub.topics),
            ("messages", f"{hub.messages:,} ({size(hub.bytes)})"),
            ("database", f"{size(hub.database_bytes)}, write-ahead log {size(hub.wal_bytes)}"),
            ("disk", f"{hub.disk_percent} % full, {size(hub.disk_free_bytes)} free"),
        ]
    )


hub_command = Noun("hub", [info, accept_gaps], help="Look at the hub itself.")
