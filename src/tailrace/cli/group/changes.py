"""`tailrace group`: changes of a group by an operator: its positions, and its deletion."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import group_argument, optional_reason, required_reason
from tailrace.cli.command import verb
from tailrace.cli.terminal.confirm import PlannedChange, planned

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub


@verb(
    "seek",
    examples="""
    tailrace group seek billing earliest --dry-run
    tailrace group seek billing @2026-01-01T00:00Z --yes
    tailrace group seek billing orders/1.7@42 --reason "charge them again"
    """,
    # A spec such as -5 is an argument, whose error says what is valid.
    context_settings={"ignore_unknown_options": True},
)
@group_argument
@click.argument("to", metavar="OFFSET_SPEC")
@optional_reason
@planned
def seek(hub: Hub, group: str, to: str, reason: str) -> PlannedChange:
    """Move a group to another position, forward or back.

    \b
    OFFSET_SPEC is  earliest             the oldest message
                    latest               after the newest message
                    @2026-01-01T00:00Z   that time (UTC if no zone is given)
                    orders/1.7@42        that message; partitions that follow
                                         orders/1.7 start from their beginning

    Running consumers continue from there at once.
    """
    from tailrace.operations.group import changes

    return PlannedChange(
        changes.plan_seek(hub, group, to), partial(changes.seek, hub, group, to, reason)
    )


@verb(
    "skip",
    examples="""
    tailrace group skip billing orders/1.7@42 --reason "cannot be charged" --dry-run
    tailrace group skip billing orders/1.7@42 --reason "cannot be charged" --yes
    """,
)
@group_argument
@click.argument("position")
@required_reason
@planned
def skip(hub: Hub, group: str, position: str, reason: str) -> PlannedChange:
    """Skip one message of a group.

    The message at POSITION, such as orders/1.7@42, is acknowledged without being delivered.
    Running consumers continue with the next message of its key. The error of the consumer that
    failed names the position, and so does `group show`.
    """
    from tailrace.operations.group import changes

    plan = changes.plan_skip(hub, group, position, reason)
    return PlannedChange(plan, partial(changes.skip, hub, group, position, reason))


@verb(
    "delete",
    examples="""
    tailrace group delete billing --dry-run
    tailrace group delete billing --yes
    """,
)
@group_argument
@optional_reason
@planned
def delete(hub: Hub, group: str, reason: str) -> PlannedChange:
    """Delete a group and its progress."""
    from tailrace.operations.group import changes

    return PlannedChange(
        changes.plan_delete(hub, group), partial(changes.delete, hub, group, reason)
    )
