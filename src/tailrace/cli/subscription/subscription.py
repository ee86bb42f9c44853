"""`tailrace subscription`: its verbs, and the creation of subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import complete_topic
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.cli.subscription.changes import (
    attempts_option,
    delete,
    first_delay_option,
    max_delay_option,
    on_dead_letter_option,
    pause,
    reset,
    resume,
    update,
)
from tailrace.cli.subscription.endpoint_options import endpoint_options
from tailrace.cli.subscription.load_options import load_options
from tailrace.cli.subscription.reshard import reshard
from tailrace.cli.subscription.run import run
from tailrace.cli.subscription.show import history, list_, show

if TYPE_CHECKING:
    from tailrace.operations.subscription.create import CreatedSubscription


@verb(
    "create",
    examples="""
    tailrace subscription create mailer --topic orders
    tailrace subscription create mailer --topic orders --attempts 20 --max-delay 1h
    tailrace subscription create india --topic orders --filter "header.country == 'IN'"
    tailrace subscription create audit --topic orders --on-dead-letter continue --from latest
    tailrace subscription create crm --topic orders --endpoint https://crm.example/hook \\
        --secret file:/run/secrets/crm
    """,
)
@click.argument("subscription")
@click.option("--topic", required=True, shell_complete=complete_topic, help="Topic to deliver.")
@attempts_option
@first_delay_option
@max_delay_option
@on_dead_letter_option
@load_options
@endpoint_options
@click.option("--filter", metavar="EXPRESSION", help="Deliver only messages that match; see above.")
@click.option(
    "--from",
    "start",
    metavar="OFFSET_SPEC",
    default="earliest",
    show_default=True,
    help="Start in the messages that the topic has; see above.",
)
@click.option("--shards", type=int, help="Number of shards.  [default: one for each partition]")
@click.option(
    "--uneven", is_flag=True, help="Allow a number of shards that does not divide the partitions."
)
@click.option("--rq-partitions", type=int, help="Partitions of RQ.  [default: as the topic]")
@click.option("--dlq-partitions", type=int, help="Partitions of DLQ.  [default: as the topic]")
@click.option("--exist-ok", is_flag=True, help="Do nothing if the same subscription exists.")
@click.pass_obj
def create(context: CommandContext, /, subscription: str, topic: str, **options: Any) -> None:
    """Create a subscription of a topic.

    It delivers the messages of the topic to a handler, or to an HTTP endpoint, in order per key. A
    message that fails is retried, and its key waits; other keys continue. After its last attempt it
    becomes a dead letter. Workers call the handler: tailrace subscription run, or an App. With
    --endpoint they post the messages there instead, as CloudEvents.

    \b
    EXPRESSION is over the key and the headers, such as
                    header.country == 'IN'
                    key matches /eu-.*/ and not header.test exists
    OFFSET_SPEC is  earliest             the oldest message
                    latest               after the newest message
                    @2026-01-01T00:00Z   that time (UTC if no zone is given)
                    orders/1.7@42        that message

    A key belongs to one shard, and a worker owns whole shards: more workers than shards are of no
    use. The number of shards can be changed later (tailrace subscription reshard); the topic and
    the policy on dead letters cannot.
    """
    from tailrace.operations.subscription.create import create_subscription

    with context.open_hub() as hub:
        created = create_subscription(hub, subscription, topic, **options)
    context.show(created, _created_text)


def _created_text(created: CreatedSubscription) -> str:
    name, settings = created.name, created.settings
    shards = format_amount(settings.shards, "shard")
    run, to = f"tailrace subscription run {name}", ""
    if settings.endpoint is None:
        run += " MODULE:FUNCTION"
    else:
        to = f" to {settings.endpoint.endpoint}"
    return f"{name}: delivers {settings.topic}{to}, {shards}; run a worker: {run}"


subscription_command = Noun(
    "subscription",
    [create, list_, show, history, run, update, reshard, pause, resume, reset, delete],
    help="Create, run, re-shard, pause, reset and delete subscriptions.",
)
