"""`tailrace pipeline`: changes of a writer by an operator. Every change is audited."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import required_reason, writer_argument
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.terminal.confirm import PlannedChange, planned

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.pipeline.interventions import InterventionReport


@verb(
    "retry",
    examples="""
    tailrace pipeline retry lake/crm
    tailrace pipeline retry lake/crm --one-at-a-time
    """,
)
@writer_argument
@click.option(
    "--one-at-a-time",
    is_flag=True,
    help="Deliver the failed or next batch one record at a time.",
)
@click.pass_obj
def retry(context: CommandContext, writer: str, one_at_a_time: bool) -> None:
    """Let a failed or waiting writer continue.

    A failed writer continues where it stopped. A waiting writer tries its sink at once.
    """
    from tailrace.operations.pipeline import interventions

    act = interventions.retry_one_at_a_time if one_at_a_time else interventions.retry
    with context.open_hub() as hub:
        context.show(act(hub, writer), _intervention_text)


@verb(
    "ack",
    examples="""
    tailrace pipeline ack lake/crm 14 --reason 'a test order'
    tailrace pipeline ack lake/crm 14-15 --reason 'duplicates'
    tailrace pipeline ack lake/crm lake.commits/0.3@14 --reason 'unreadable'
    """,
)
@writer_argument
@click.argument("offset")
@required_reason
@click.pass_obj
def ack(context: CommandContext, writer: str, offset: str, reason: str) -> None:
    """Acknowledge records without delivering them.

    OFFSET is an offset of the commit log, such as 14, or a range, 14-15, the last one included. If
    the log has several partitions it is a position, such as lake.commits/0.3@14.
    """
    from tailrace.operations.pipeline import interventions

    with context.open_hub() as hub:
        context.show(interventions.ack(hub, writer, offset, reason), _intervention_text)


@verb(
    "rewind",
    examples="""
    tailrace pipeline rewind lake/crm 9 --dry-run
    tailrace pipeline rewind lake/crm 9 --yes
    """,
)
@writer_argument
@click.argument("offset")
@planned
def rewind(hub: Hub, writer: str, offset: str) -> PlannedChange:
    """Redeliver records to a writer from an offset on.

    The records that it has acknowledged from there on are delivered again.
    """
    from tailrace.operations.pipeline import rewind as operation

    plan = operation.plan_rewind(hub, writer, offset)
    return PlannedChange(plan, partial(operation.rewind, hub, writer, offset))


@verb(
    "forget",
    examples="""
    tailrace pipeline forget lake/old --dry-run
    tailrace pipeline forget lake/old --yes
    """,
)
@writer_argument
@planned
def forget(hub: Hub, writer: str) -> PlannedChange:
    """Remove a writer and its progress.

    Compaction no longer waits for it. The pipeline must be stopped. The rows in the sink stay.
    """
    from tailrace.operations.pipeline import forget as operation

    return PlannedChange(operation.plan_forget(hub, writer), partial(operation.forget, hub, writer))


def _intervention_text(done: InterventionReport) -> str:
    when = "at the next start" if done.running is None else f"now, by {done.running}"
    return f"{done.target}: {done.what}; takes effect {when}"
