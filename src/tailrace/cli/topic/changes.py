"""`tailrace topic`: the changes that cannot be undone. Each prints its plan and asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import any_count_option, topic_argument
from tailrace.cli.command import verb
from tailrace.cli.terminal.confirm import PlannedChange, planned

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub


@verb(
    "scale",
    examples="""
    tailrace topic scale orders 12 --dry-run
    tailrace topic scale orders 12
    tailrace topic scale orders 8 --yes
    """,
)
@topic_argument
@click.argument("partitions", type=int)
@any_count_option
@planned
def scale(hub: Hub, topic: str, partitions: int, any_count: bool) -> PlannedChange:
    """Change the number of partitions of a topic.

    Producers and consumers may keep running. A storage topic with that number of partitions is
    added and takes the pushes; the current one is sealed. The order of each key's messages is kept.
    """
    from tailrace.operations.topic import changes

    plan = changes.plan_scale(hub, topic, partitions, any_count=any_count)
    return PlannedChange(plan, partial(changes.scale, hub, topic, partitions, any_count=any_count))


@verb(
    "add-storage",
    examples="""
    tailrace topic add-storage orders 12 --dry-run
    tailrace topic add-storage orders 12 --yes
    """,
)
@topic_argument
@click.argument("partitions", type=int)
@any_count_option
@planned
def add_storage(hub: Hub, topic: str, partitions: int, any_count: bool) -> PlannedChange:
    """Append a storage topic without switching pushes to it.

    `topic scale` appends and switches in one step.
    """
    from tailrace.operations.topic import changes

    plan = changes.plan_add_storage(hub, topic, partitions, any_count=any_count)
    return PlannedChange(
        plan, partial(changes.add_storage, hub, topic, partitions, any_count=any_count)
    )


@verb(
    "switch",
    examples="""
    tailrace topic switch orders --dry-run
    tailrace topic switch orders --yes
    """,
)
@topic_argument
@planned
def switch(hub: Hub, topic: str) -> PlannedChange:
    """Switch pushes to the next storage topic.

    The current storage topic is sealed in the same commit.
    """
    from tailrace.operations.topic import changes

    return PlannedChange(changes.plan_switch(hub, topic), partial(changes.switch, hub, topic))


@verb(
    "trim",
    examples="""
    tailrace topic trim orders --before 1 --dry-run
    tailrace topic trim orders --before 2 --yes
    """,
)
@topic_argument
@click.option(
    "--before",
    type=int,
    required=True,
    metavar="STORAGE",
    help="Oldest storage topic to keep.",
)
@click.option("--force", is_flag=True, help="Also delete messages that consumers have not read.")
@planned
def trim(hub: Hub, topic: str, before: int, force: bool) -> PlannedChange:
    """Delete the oldest storage topics with their messages.

    Storage topics that a consumer has not finished are deleted with --force only.
    """
    from tailrace.operations.topic import changes

    plan = changes.plan_trim(hub, topic, before, force=force)
    return PlannedChange(plan, partial(changes.trim, hub, topic, before, force=force))


@verb(
    "delete",
    examples="""
    tailrace topic delete orders --dry-run
    tailrace topic delete orders --yes
    """,
)
@topic_argument
@planned
def delete(hub: Hub, topic: str) -> PlannedChange:
    """Delete a topic with all its messages."""
    from tailrace.operations.topic import changes

    return PlannedChange(changes.plan_delete(hub, topic), partial(changes.delete, hub, topic))
