"""`tailrace pipeline`: what operators do to a writer. Everything is audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.asking import asks, carry_out
from tailrace.cli.command import verb
from tailrace.cli.pipeline_arguments import writer_argument
from tailrace.cli.session import Session

if TYPE_CHECKING:
    from tailrace.operations.interventions import Intervention


@verb(
    "retry",
    examples="""
    tailrace pipeline retry lake/crm
    tailrace pipeline retry lake/crm --one-at-a-time
    """,
)
@writer_argument
@click.option(
    "--one-at-a-time", is_flag=True, help="Record by record, past what failed or the next batch."
)
@click.pass_obj
def retry(session: Session, writer: str, one_at_a_time: bool) -> None:
    """Let a failed writer go on where it stopped."""
    from tailrace.operations import interventions

    act = interventions.retry_one_at_a_time if one_at_a_time else interventions.retry
    with session.open_hub() as hub:
        session.show(act(hub, writer), _intervention_text)


@verb(
    "ack",
    examples="""
    tailrace pipeline ack lake/crm 14 --reason 'a test order, agreed with Ann'
    tailrace pipeline ack lake/crm 14-15 --reason 'duplicates'
    tailrace pipeline ack lake/crm lake.commits/0.3@14 --reason 'unreadable'
    """,
)
@writer_argument
@click.argument("offset")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the audit.")
@click.pass_obj
def ack(session: Session, writer: str, offset: str, reason: str) -> None:
    """Acknowledge records without sending them.

    OFFSET is an offset of the commit log, a range with its last one, or a position where the log
    has several partitions.
    """
    from tailrace.operations import interventions

    with session.open_hub() as hub:
        session.show(interventions.ack(hub, writer, offset, reason), _intervention_text)


@verb(
    "rewind",
    examples="""
    tailrace pipeline rewind lake/crm 9 --dry-run
    tailrace pipeline rewind lake/crm 9 --yes
    """,
)
@writer_argument
@click.argument("offset")
@asks
@click.pass_obj
def rewind(session: Session, writer: str, offset: str, yes: bool, dry_run: bool) -> None:
    """Let a writer begin again at an offset.

    All that it has acknowledged from there on is delivered again.
    """
    from tailrace.operations import rewinding

    with session.open_hub() as hub:
        plan = rewinding.plan_rewind(hub, writer, offset)
        carry_out(
            session,
            plan,
            lambda: rewinding.rewind(hub, writer, offset),
            yes=yes,
            dry_run=dry_run,
        )


@verb(
    "forget",
    examples="""
    tailrace pipeline forget lake/old --dry-run
    tailrace pipeline forget lake/old --yes
    """,
)
@writer_argument
@asks
@click.pass_obj
def forget(session: Session, writer: str, yes: bool, dry_run: bool) -> None:
    """Remove a writer, so that nothing waits for it any more.

    Its pipeline must not run. What its sink holds stays.
    """
    from tailrace.operations import rewinding

    with session.open_hub() as hub:
        plan = rewinding.plan_forget(hub, writer)
        carry_out(session, plan, lambda: rewinding.forget(hub, writer), yes=yes, dry_run=dry_run)


def _intervention_text(done: Intervention) -> str:
    when = "at its next start" if done.running is None else f"now, by {done.running}"
    return f"{done.target}: {done.what}; {when}"
