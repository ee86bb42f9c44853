"""`tailrace topic`: the changes that cannot be undone. Each prints its plan and asks."""

from __future__ import annotations

import click

from tailrace.cli.arguments import any_count_option, topic_argument
from tailrace.cli.asking import asks, carry_out
from tailrace.cli.command import verb
from tailrace.cli.session import Session


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
@asks
@click.pass_obj
def scale(
    session: Session, topic: str, partitions: int, any_count: bool, yes: bool, dry_run: bool
) -> None:
    """Give a topic another number of partitions.

    It may be in use meanwhile. A storage topic of that many partitions is added and takes the
    pushes; the present one is sealed. The order of each key's messages holds.
    """
    from tailrace.operations import changes

    with session.open_hub() as hub:
        plan = changes.plan_scale(hub, topic, partitions, any_count=any_count)
        carry_out(
            session,
            plan,
            lambda: changes.scale(hub, topic, partitions, any_count=any_count),
            yes=yes,
            dry_run=dry_run,
        )


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
@asks
@click.pass_obj
def add_storage(
    session: Session, topic: str, partitions: int, any_count: bool, yes: bool, dry_run: bool
) -> None:
    """Append a storage topic, to be switched to later.

    `topic scale` does this and the switch in one step.
    """
    from tailrace.operations import changes

    with session.open_hub() as hub:
        plan = changes.plan_add_storage(hub, topic, partitions, any_count=any_count)
        carry_out(
            session,
            plan,
            lambda: changes.add_storage(hub, topic, partitions, any_count=any_count),
            yes=yes,
            dry_run=dry_run,
        )


@verb(
    "switch",
    examples="""
    tailrace topic switch orders --dry-run
    tailrace topic switch orders --yes
    """,
)
@topic_argument
@asks
@click.pass_obj
def switch(session: Session, topic: str, yes: bool, dry_run: bool) -> None:
    """Let the next storage topic take the pushes.

    The present one is sealed in the same commit.
    """
    from tailrace.operations import changes

    with session.open_hub() as hub:
        plan = changes.plan_switch(hub, topic)
        carry_out(session, plan, lambda: changes.switch(hub, topic), yes=yes, dry_run=dry_run)


@verb(
    "delete",
    examples="""
    tailrace topic delete orders --dry-run
    tailrace topic delete orders --yes
    """,
)
@topic_argument
@asks
@click.pass_obj
def delete(session: Session, topic: str, yes: bool, dry_run: bool) -> None:
    """Delete a topic with all its messages, for ever."""
    from tailrace.operations import changes

    with session.open_hub() as hub:
        plan = changes.plan_delete(hub, topic)
        carry_out(session, plan, lambda: changes.delete(hub, topic), yes=yes, dry_run=dry_run)
