"""`tailrace topic`: create, list and show topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import any_count_option, topic_argument
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.cli.topic.changes import add_storage, delete, scale, switch, trim
from tailrace.terminal.tables import facts, format_time, size, table

if TYPE_CHECKING:
    from tailrace.operations.topic.describe import TopicDetail, TopicSubscription, TopicSummary


@verb(
    "create",
    examples="""
    tailrace topic create orders
    tailrace topic create orders --partitions 12 --router range
    tailrace topic create orders --order-by customer.id
    tailrace topic create notes --type text --hub ./data
    """,
)
@click.argument("topic")
@click.option(
    "--partitions", "-p", type=int, default=4, show_default=True, help="Number of partitions."
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["json", "text", "bytes"]),
    default="json",
    show_default=True,
    help="Type of the values.",
)
@click.option(
    "--router",
    type=click.Choice(["shard-consistent", "range"]),
    default="shard-consistent",
    show_default=True,
    help="How keys are assigned to partitions.",
)
@click.option(
    "--order-by",
    metavar="PATH",
    help="Field of the values, or header:NAME, that is the key of each message.",
)
@any_count_option
@click.option("--exist-ok", is_flag=True, help="Do nothing if the same topic exists.")
@click.pass_obj
def create(
    context: CommandContext,
    topic: str,
    partitions: int,
    kind: str,
    router: str,
    order_by: str | None,
    any_count: bool,
    exist_ok: bool,
) -> None:
    """Create a topic. Create the hub if it does not exist."""
    from tailrace.operations.topic.create import ValueKind, check_topic, create_topic
    from tailrace.topic.router import RouterKind

    if not context.has_hub:
        check_topic(topic, partitions=partitions, any_count=any_count, order_by=order_by)
    with context.create_hub() as hub:
        created = create_topic(
            hub,
            topic,
            partitions=partitions,
            router=RouterKind(router),
            kind=ValueKind(kind),
            order_by=order_by,
            any_count=any_count,
            exist_ok=exist_ok,
        )
        where = hub.backend.name
    context.show(
        created,
        lambda t: (
            f"{t.name}: {format_amount(t.partitions, 'partition')}, {t.content_type}, in {where}"
        ),
    )


@verb(
    "list",
    examples="""
    tailrace topic list
    tailrace topic list -o json
    """,
)
@click.pass_obj
def list_(context: CommandContext) -> None:
    """List all topics."""
    from tailrace.operations.topic.describe import list_topics

    with context.open_hub() as hub:
        context.show(list_topics(hub), _topics_table)


def _topics_table(topics: list[TopicSummary]) -> str:
    if not topics:
        return "no topics; create one: tailrace topic create NAME"
    return table(
        ("topic", "partitions", "storage topics", "messages", "size", "content type", "router"),
        (
            (
                t.name,
                t.partitions,
                t.storage_topics,
                t.messages,
                size(t.bytes),
                t.content_type,
                t.router,
            )
            for t in topics
        ),
    )


@verb(
    "show",
    examples="""
    tailrace topic show orders
    tailrace topic show orders --partitions
    tailrace topic show orders --watch
    """,
)
@topic_argument
@click.option("--partitions", is_flag=True, help="List every partition.")
@watches
@click.pass_obj
def show(context: CommandContext, topic: str, partitions: bool, watch: bool) -> None:
    """Show a topic and its storage topics."""
    from tailrace.operations.topic.describe import show_topic

    render = _partitions_text if partitions else _topic_text
    with context.open_hub() as hub:
        show_once_or_watch(lambda: context.show(show_topic(hub, topic), render), watch=watch)


def _topic_text(topic: TopicDetail) -> str:
    head = facts(
        [
            ("topic", topic.name),
            ("messages", f"{topic.messages:,} ({size(topic.bytes)})"),
            ("content type", topic.content_type),
            ("type", "any" if topic.type is None else topic.type.text),
            ("ordered by", topic.order_by or "key"),
            ("router", topic.router),
            ("created", format_time(topic.created)),
            *((("deleted", _deleted(topic.deleted)),) if topic.deleted else ()),
            *(
                ("queue" if each.queue else "subscription", _subscription(each))
                for each in topic.subscriptions
            ),
        ]
    )
    return f"{head}\n\n" + table(
        ("storage", "partitions", "messages", "size", "state"),
        (
            (
                s.index,
                s.partitions,
                s.messages,
                size(s.bytes),
                _state(s.sealed, s.takes_pushes),
            )
            for s in topic.storage
        ),
    )


def _deleted(storages: tuple[int, ...]) -> str:
    return f"storage {', '.join(map(str, storages))}, with all messages"


def _subscription(subscription: TopicSubscription) -> str:
    text = f"{subscription.name}, {format_amount(subscription.shards, 'shard')}"
    if subscription.closed is None:
        return text
    explain = f"tailrace explain {subscription.name} --subscription"
    return f"{text}; its next generation reads storage {subscription.closed}: {explain}"


def _state(sealed: bool, takes_pushes: bool) -> str:
    if sealed:
        return "sealed"
    return "current" if takes_pushes else "not used yet"


def _partitions_text(topic: TopicDetail) -> str:
    return f"{_topic_text(topic)}\n\n" + table(
        ("partition", "start", "end", "messages", "size", "segments", "follows"),
        (
            (
                p.partition,
                p.start,
                p.end,
                p.messages,
                size(p.bytes),
                p.segments,
                " ".join(p.follows),
            )
            for storage in topic.storage
            for p in storage.holds
        ),
    )


@verb(
    "route",
    examples="""
    tailrace topic route orders c7
    tailrace topic route orders c7 c8 -o json
    """,
)
@topic_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.pass_obj
def route(context: CommandContext, topic: str, keys: tuple[str, ...]) -> None:
    """Show the partition of each key."""
    from tailrace.operations.topic.describe import route_keys

    with context.open_hub() as hub:
        routes = route_keys(hub, topic, keys)
    context.show(
        routes, lambda found: table(("key", "partition"), ((r.key, r.partition) for r in found))
    )


topic_command = Noun(
    "topic",
    [create, list_, show, route, scale, add_storage, switch, trim, delete],
    help="Create, show, scale, trim and delete topics.",
)
