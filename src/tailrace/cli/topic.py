"""`tailrace topic`: making, listing and showing topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import any_count_option, topic_argument
from tailrace.cli.command import Noun, verb
from tailrace.cli.session import Session
from tailrace.cli.tables import facts, moment, size, table
from tailrace.cli.topic_changes import add_storage, delete, scale, switch
from tailrace.cli.watching import show_once_or_watch, watches

if TYPE_CHECKING:
    from tailrace.operations.topics import TopicDetail, TopicSummary


@verb(
    "create",
    examples="""
    tailrace topic create orders
    tailrace topic create orders --partitions 12 --router range
    tailrace topic create notes --type text --hub ./data
    """,
)
@click.argument("topic")
@click.option("--partitions", "-p", type=int, default=4, show_default=True, help="How many.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["json", "text", "bytes"]),
    default="json",
    show_default=True,
    help="What its values are.",
)
@click.option(
    "--router",
    type=click.Choice(["shard-consistent", "range"]),
    default="shard-consistent",
    show_default=True,
    help="How keys become partitions.",
)
@any_count_option
@click.option("--exist-ok", is_flag=True, help="No error when the same topic is there.")
@click.pass_obj
def create(
    session: Session,
    topic: str,
    partitions: int,
    kind: str,
    router: str,
    any_count: bool,
    exist_ok: bool,
) -> None:
    """Create a topic, and the hub where there is none."""
    from tailrace.operations import topics
    from tailrace.topic.router import RouterKind

    if not session.has_hub:
        topics.check_topic(topic, partitions=partitions, any_count=any_count)
    with session.create_hub() as hub:
        created = topics.create_topic(
            hub,
            topic,
            partitions=partitions,
            router=RouterKind(router),
            kind=topics.ValueKind(kind),
            any_count=any_count,
            exist_ok=exist_ok,
        )
        where = hub.backend.name
    session.show(
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
def list_(session: Session) -> None:
    """List all topics."""
    from tailrace.operations.topics import list_topics

    with session.open_hub() as hub:
        session.show(list_topics(hub), _topics_table)


def _topics_table(topics: list[TopicSummary]) -> str:
    if not topics:
        return "no topics; make one: tailrace topic create NAME"
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
def show(session: Session, topic: str, partitions: bool, watch: bool) -> None:
    """Show a topic, its storage topics and what they hold."""
    from tailrace.operations.topics import show_topic

    render = _partitions_text if partitions else _topic_text
    with session.open_hub() as hub:
        show_once_or_watch(lambda: session.show(show_topic(hub, topic), render), watch=watch)


def _topic_text(topic: TopicDetail) -> str:
    head = facts(
        [
            ("topic", topic.name),
            ("messages", f"{topic.messages:,} ({size(topic.bytes)})"),
            ("content type", topic.content_type),
            ("router", topic.router),
            ("created", moment(topic.created)),
        ]
    )
    return f"{head}\n\n" + table(
        ("storage", "partitions", "K", "base", "messages", "size", "state"),
        (
            (
                s.index,
                s.partitions,
                s.k,
                s.base,
                s.messages,
                size(s.bytes),
                _state(s.sealed, s.takes_pushes),
            )
            for s in topic.storage
        ),
    )


def _state(sealed: bool, takes_pushes: bool) -> str:
    if sealed:
        return "sealed"
    return "takes pushes" if takes_pushes else "waits for a switch"


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
def route(session: Session, topic: str, keys: tuple[str, ...]) -> None:
    """Say which partition the messages of a key go to now."""
    from tailrace.operations.topics import route_keys

    with session.open_hub() as hub:
        routes = route_keys(hub, topic, keys)
    session.show(
        routes, lambda found: table(("key", "partition"), ((r.key, r.partition) for r in found))
    )


topic_command = Noun(
    "topic",
    [create, list_, show, route, scale, add_storage, switch, delete],
    help="Make, show, scale and delete topics.",
)
