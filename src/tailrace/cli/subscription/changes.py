"""`tailrace subscription`: changes of a subscription by an operator. Every change is audited."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.arguments import (
    Decorator,
    optional_reason,
    required_reason,
    subscription_argument,
)
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.subscription.endpoint_options import endpoint_options
from tailrace.cli.subscription.load_options import load_options
from tailrace.cli.subscription.pause_text import paused_text, resumed_text
from tailrace.cli.terminal.confirm import PlannedChange, planned

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.subscription.changes import UpdateReport

attempts_option: Final[Decorator] = click.option(
    "--attempts",
    metavar="NUMBER|none",
    help="Number of attempts until a message becomes a dead letter.  [default: 8]",
)
first_delay_option: Final[Decorator] = click.option(
    "--first-delay",
    metavar="DURATION",
    help="Delay after the first failed attempt; it doubles after each further one.  [default: 1s]",
)
max_delay_option: Final[Decorator] = click.option(
    "--max-delay", metavar="DURATION", help="Longest delay between attempts.  [default: 10m]"
)
on_dead_letter_option: Final[Decorator] = click.option(
    "--on-dead-letter",
    type=click.Choice(["block", "continue"]),
    help="Whether later messages of a key wait behind its dead letter.  [default: block]",
)


@verb(
    "pause",
    examples="""
    tailrace subscription pause mailer --reason 'the mail server is down until 10:00'
    """,
)
@subscription_argument
@required_reason
@click.pass_obj
def pause(context: CommandContext, subscription: str, reason: str) -> None:
    """Pause a subscription until it is resumed.

    Its workers finish the calls in flight and call no handler more. They keep running, and messages
    wait.
    """
    from tailrace.operations.subscription.pause import pause

    with context.open_hub() as hub:
        context.show(pause(hub, subscription, reason), paused_text)


@verb(
    "resume",
    examples="""
    tailrace subscription resume mailer
    """,
)
@subscription_argument
@optional_reason
@click.pass_obj
def resume(context: CommandContext, subscription: str, reason: str) -> None:
    """Resume a paused subscription. Its workers continue at once."""
    from tailrace.operations.subscription.pause import resume

    with context.open_hub() as hub:
        context.show(resume(hub, subscription, reason), resumed_text)


@verb(
    "update",
    examples="""
    tailrace subscription update mailer --attempts 20 --max-delay 1h
    tailrace subscription update mailer --filter "header.country == 'IN'"
    tailrace subscription update mailer --filter ''
    tailrace subscription update mailer --concurrency-total 20 --breaker run=50
    tailrace subscription update crm --endpoint https://crm.example/v2/hook
    """,
)
@subscription_argument
@attempts_option
@first_delay_option
@max_delay_option
@click.option("--filter", metavar="EXPRESSION", help="New filter; '' removes the filter.")
@load_options
@endpoint_options
@optional_reason
@click.pass_obj
def update(context: CommandContext, /, subscription: str, **options: Any) -> None:
    """Change the settings of a subscription or queue.

    Values that are not given stay as they are; an empty filter or secret removes it. Running
    workers follow at once, except that a longer timeout of an endpoint holds from their next start.
    For the number of shards see tailrace subscription reshard. The topic and the policy on dead
    letters cannot be changed, and a subscription that calls a handler gets no endpoint.
    """
    from tailrace.operations.subscription import changes

    given = {name: value for name, value in options.items() if name != "reason"}
    if all(value is None for value in given.values()):
        flags = [f"--{name.replace('_', '-')}" for name in given]
        raise click.UsageError(f"give {', '.join(flags[:-1])} or {flags[-1]}")
    with context.open_hub() as hub:
        context.show(changes.update(hub, subscription, **options), _updated_text)


def _updated_text(report: UpdateReport) -> str:
    name = report.subscription
    if not report.changed:
        return f"{name}: no setting has changed"
    before, after = report.before.changeable, report.after.changeable
    return "\n".join(
        f"{name}: {option.replace('_', ' ')} {_shown(before[option])} -> {_shown(now)}"
        for option, now in after.items()
        if before[option] != now
    )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


@verb(
    "reset",
    examples="""
    tailrace subscription reset mailer --to start --dry-run
    tailrace subscription reset mailer --to @2026-01-01T00:00Z
    tailrace subscription reset mailer --to orders/1.7@42 --yes
    tailrace subscription reset mailer --to end --queue rq --yes
    """,
)
@subscription_argument
@click.option(
    "--to",
    required=True,
    metavar="start|end|@TIME|POSITION",
    help="New offset of every partition, or of that of a position and those that follow it.",
)
@click.option(
    "--queue",
    type=click.Choice(["mq", "rq", "dlq"]),
    default="mq",
    show_default=True,
    help="Queue to reset: the topic, the retry queue or the dead-letter queue.",
)
@optional_reason
@planned
def reset(hub: Hub, subscription: str, to: str, queue: str, reason: str) -> PlannedChange:
    """Reset a subscription to other offsets.

    The topic is reset back or forward: its messages from there on are delivered, also those that
    were delivered before. RQ and DLQ move forward only: what is passed over is not delivered.
    Workers may run.
    """
    from tailrace.operations.subscription import reset as resets

    return PlannedChange(
        resets.plan_reset(hub, subscription, to, queue=queue),
        partial(resets.reset, hub, subscription, to, queue=queue, reason=reason),
    )


@verb(
    "delete",
    examples="""
    tailrace subscription delete mailer --dry-run
    tailrace subscription delete mailer --yes
    """,
)
@subscription_argument
@optional_reason
@planned
def delete(hub: Hub, subscription: str, reason: str) -> PlannedChange:
    """Delete a subscription, its queues and its progress.

    Its dead letters and the messages of its retry queue are not delivered any more. The topic and
    its messages stay. Running workers end with an error.
    """
    from tailrace.operations.subscription import changes

    plan = changes.plan_delete(hub, subscription)
    return PlannedChange(plan, partial(changes.delete, hub, subscription, reason))
