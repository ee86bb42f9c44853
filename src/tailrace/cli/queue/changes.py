"""`tailrace queue`: changes of a queue by an operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import optional_reason, queue_argument, required_reason
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.subscription.pause_text import interrupted_text, paused_text, resumed_text
from tailrace.cli.terminal.confirm import PlannedChange, planned
from tailrace.terminal.signals import Signals, interrupt
from tailrace.terminal.tables import table

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.queue.changes import RebalanceReport


@verb(
    "pause",
    examples="""
    tailrace queue pause thumbnails --reason 'the disk of the images is full'
    tailrace queue pause thumbnails --drain --timeout 2m --reason 'migrate the database'
    """,
)
@queue_argument
@click.option("--drain", is_flag=True, help="Wait until nothing is in flight in any process.")
@click.option(
    "--timeout",
    metavar="DURATION",
    help="Longest wait of --drain; the exit status is 3 after it.  [default: no end]",
)
@required_reason
@click.pass_obj
def pause(
    context: CommandContext, queue: str, drain: bool, timeout: str | None, reason: str
) -> None:
    """Pause a queue until `tailrace queue play`, over restarts too.

    Its consumers finish the calls in flight and call no handler more. They keep running and keep
    their shards. Pushes go on. Ctrl-C ends the wait of --drain, not the pause.
    """
    from tailrace.operations.queue import changes

    if timeout is not None and not drain:
        raise click.UsageError("--timeout needs --drain")
    with context.open_hub() as hub, Signals(interrupt):
        try:
            report = changes.pause(hub, queue, reason, drain=drain, timeout=timeout)
        except KeyboardInterrupt:
            _tell_paused(context, hub, queue)
            raise
        context.show(report, paused_text)
    if report.quiet is False:
        raise click.exceptions.Exit(ExitStatus.STOPPED)


def _tell_paused(context: CommandContext, hub: Hub, queue: str) -> None:
    """Print that an interrupted command leaves the queue paused, if it does."""
    from tailrace.operations.subscription.pause import read_pause

    report = read_pause(hub, queue)
    if report.since is not None:
        click.echo(context.text(interrupted_text(report)), err=True)


@verb(
    "play",
    examples="""
    tailrace queue play thumbnails
    """,
)
@queue_argument
@optional_reason
@click.pass_obj
def play(context: CommandContext, queue: str, reason: str) -> None:
    """End the pause of a queue. Its consumers continue at once."""
    from tailrace.operations.queue import changes

    with context.open_hub() as hub:
        context.show(changes.play(hub, queue, reason), resumed_text)


@verb(
    "rebalance",
    examples="""
    tailrace queue rebalance thumbnails
    tailrace queue rebalance thumbnails --timeout 1m
    """,
)
@queue_argument
@click.option(
    "--timeout",
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="Longest wait; the exit status is 3 after it.",
)
@click.pass_obj
def rebalance(context: CommandContext, queue: str, timeout: str) -> None:
    """Wait until the shards are divided evenly, and show them.

    Consumers divide them by themselves whenever one joins or leaves, so that usually nothing moves.
    Shards move, messages are never copied.
    """
    from tailrace.operations.queue import changes

    with context.open_hub() as hub:
        report = changes.rebalance(hub, queue, timeout=timeout)
        context.show(report, _rebalanced_text)
    if not report.balanced:
        raise click.exceptions.Exit(ExitStatus.STOPPED)


def _rebalanced_text(report: RebalanceReport) -> str:
    if not report.consumers:
        return f"{report.queue}: no consumer runs"
    even = "the shards are divided evenly" if report.balanced else "NOT divided evenly in time"
    moved = format_amount(len(report.moves), "shard") + " moved" if report.moves else "none moved"
    rows = table(
        ("consumer", "shards"),
        ((name, _shards(shards)) for name, shards in report.consumers.items()),
    )
    return f"{report.queue}: {even}, {moved}\n\n{rows}"


def _shards(shards: tuple[int, ...]) -> str:
    return ", ".join(map(str, shards)) or "none: on standby"


@verb(
    "delete",
    examples="""
    tailrace queue delete thumbnails --dry-run
    tailrace queue delete thumbnails --yes
    """,
)
@queue_argument
@optional_reason
@planned
def delete(hub: Hub, queue: str, reason: str) -> PlannedChange:
    """Delete a queue with its messages and its dead letters.

    Running consumers end with an error. Groups and subscriptions that read the messages of the
    queue lose their topic.
    """
    from tailrace.operations.queue import changes

    return PlannedChange(
        changes.plan_delete(hub, queue), partial(changes.delete, hub, queue, reason)
    )
