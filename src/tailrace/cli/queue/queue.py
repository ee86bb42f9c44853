"""`tailrace queue`: its verbs, the creation of queues, and their counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import queue_argument
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.cli.queue.changes import delete, pause, play, rebalance
from tailrace.cli.queue.replay import replay
from tailrace.cli.subscription.changes import (
    attempts_option,
    first_delay_option,
    max_delay_option,
    on_dead_letter_option,
)
from tailrace.cli.subscription.load_options import load_options
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import facts, table

if TYPE_CHECKING:
    from tailrace.operations.queue.create import CreatedQueue
    from tailrace.operations.queue.describe import QueueReport, QueueSummary, ShardReport


@verb(
    "create",
    examples="""
    tailrace queue create thumbnails
    tailrace queue create thumbnails --shards 24
    tailrace queue create emails --attempts 20 --max-delay 1h
    tailrace queue create orders --from-topic
    """,
)
@click.argument("queue")
@click.option("--shards", type=int, help="Number of shards.  [default: 12]")
@attempts_option
@first_delay_option
@max_delay_option
@on_dead_letter_option
@load_options
@click.option(
    "--from-topic", is_flag=True, help="Make an existing topic a queue, from its first message on."
)
@click.pass_obj
def create(context: CommandContext, /, queue: str, **options: Any) -> None:
    """Create a queue. An app, or hub.queue in Python, creates it too when it is first used.

    Consumers share the shards of a queue: more consumers than shards stand by. Messages of one key
    are handled in order. A message that fails is retried, and its key waits; other keys continue.
    After its last attempt it becomes a dead letter.

    A queue that exists stays as it is; it is an error if options are given and differ. The shards
    and the policy on dead letters cannot be changed later.
    """
    from tailrace.operations.queue.create import create_queue

    with context.create_hub() as hub:
        context.show(create_queue(hub, queue, **options), _created_text)


def _created_text(found: CreatedQueue) -> str:
    name, shards = found.name, format_amount(found.settings.shards, "shard")
    if not found.created:
        return f"{name}: exists, {shards}"
    run = f"tailrace subscription run {name} MODULE:FUNCTION"
    return f"{name}: created, {shards}; run a consumer: {run}"


@verb(
    "list",
    examples="""
    tailrace queue list
    tailrace queue list --watch
    tailrace queue list -o json
    """,
)
@watches
@click.pass_obj
def list_(context: CommandContext, watch: bool) -> None:
    """List all queues, with their consumers and their messages."""
    from tailrace.operations.queue.describe import list_queues

    with context.open_hub() as hub:
        show_once_or_watch(lambda: context.show(list_queues(hub), _queues_table), watch=watch)


def _queues_table(queues: list[QueueSummary]) -> str:
    if not queues:
        return "no queues; create one: tailrace queue create NAME"
    return table(
        ("queue", "state", "consumers", "shards", "ready", "in flight", "retrying", "dead"),
        (
            (
                each.name,
                each.state.value,
                each.consumers,
                each.shards,
                each.ready,
                each.in_flight,
                each.retrying,
                each.dead,
            )
            for each in queues
        ),
    )


@verb(
    "stats",
    examples="""
    tailrace queue stats thumbnails
    tailrace queue stats thumbnails --shards
    tailrace queue stats thumbnails --watch
    tailrace queue stats thumbnails -o json
    """,
)
@queue_argument
@click.option("--shards", is_flag=True, help="Show the counts of each shard, too.")
@watches
@click.pass_obj
def stats(context: CommandContext, queue: str, shards: bool, watch: bool) -> None:
    """Count the messages of a queue by what became of them.

    \b
    inserted   messages that were pushed
    emitted    calls of a handler, with those of further attempts; failed: those that failed
    acked      messages that were handled; skipped: those of them, at most once, whose call did
               not end before its consumer did
    filtered   messages that do not match the filter
    discarded  dead letters that an operator dropped
    dead       dead letters, and messages of their keys behind them
    expired    messages that were removed before they were handled
    retrying   messages that failed and wait for another attempt, and those behind them
    in flight  messages whose call may be under way
    ready      messages that wait for a consumer

    When no message moves, every message that was inserted is in exactly one of the counts from
    acked to ready, without skipped; the last line says if that holds ("conserved").
    """
    from tailrace.operations.queue.describe import show_stats

    text = _report_with_shards if shards else _report_text
    with context.open_hub() as hub:
        show_once_or_watch(lambda: context.show(show_stats(hub, queue), text), watch=watch)


def _report_text(report: QueueReport) -> str:
    return facts(_report_facts(report))


def _report_with_shards(report: QueueReport) -> str:
    head, _, last = _report_text(report).rpartition("\n")
    return f"{head}\n{last}\n\n{_shards_table(report.shards)}"


def _report_facts(report: QueueReport) -> Iterator[tuple[str, object]]:
    total = report.total
    yield "queue", report.queue
    yield "state", f"{report.state}: {report.why}"
    standby = f", {report.standby:,} on standby" if report.standby else ""
    shards = format_amount(len(report.shards), "shard")
    yield "consumers", f"{report.consumers:,} for {shards}{standby}"
    yield "inserted", total.inserted
    failed = f", {total.failed:,} failed" if total.failed else ""
    yield "emitted", f"{total.emitted:,}{failed}"
    skipped = f", of which {total.skipped:,} skipped" if total.skipped else ""
    yield "acked", f"{total.acked:,}{skipped}"
    for name in ("filtered", "discarded", "dead", "expired", "retrying", "in_flight", "ready"):
        yield name.replace("_", " "), getattr(total, name)
    yield "accounts", report.accounting


def _shards_table(shards: tuple[ShardReport, ...]) -> str:
    names = ("inserted", "acked", "filtered", "discarded", "dead", "expired", "retrying")
    waiting = ("in_flight", "ready")
    return table(
        ("shard", "consumer", *names, "in flight", "ready"),
        (
            (
                each.shard,
                each.owner or "none",
                *(getattr(each.counts, name) for name in (*names, *waiting)),
            )
            for each in shards
        ),
    )


queue_command = Noun(
    "queue",
    [create, list_, stats, pause, play, rebalance, replay, delete],
    help="Create, count, pause, replay and delete queues.",
)
