"""`tailrace segment`: list, show, verify and compact the files of topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import complete_topic
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.terminal.confirm import PlannedChange, planned
from tailrace.terminal.progress import ProgressDisplay
from tailrace.terminal.tables import facts, format_time, size, table

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.storage.compaction import CompactionReport
    from tailrace.operations.storage.segments import SegmentDetail, SegmentSummary, Verification


@verb(
    "list",
    examples="""
    tailrace segment list
    tailrace segment list orders
    tailrace segment list orders/1.7 -o json
    """,
)
@click.argument("where", required=False, metavar="[TOPIC|PARTITION]", shell_complete=complete_topic)
@click.pass_obj
def list_(context: CommandContext, where: str | None) -> None:
    """List the segments of the hub, of a topic or of a partition."""
    from tailrace.operations.storage.segments import list_segments

    with context.open_hub() as hub:
        context.show(list_segments(hub, where), _segments_table)


def _segments_table(segments: list[SegmentSummary]) -> str:
    if not segments:
        return "no segments: no message was pushed yet"
    return table(
        ("partition", "base", "end", "messages", "size", "state"),
        (
            (
                s.partition,
                s.base,
                s.end,
                s.messages,
                size(s.bytes),
                s.state,
            )
            for s in segments
        ),
    )


@verb(
    "show",
    examples="""
    tailrace segment show orders/0.3
    tailrace segment show orders/0.3@42
    """,
)
@click.argument("position", metavar="PARTITION[@OFFSET]")
@click.pass_obj
def show(context: CommandContext, position: str) -> None:
    """Show a segment: its files and its newest batches.

    With an offset it is the segment that holds the offset, else the newest segment. The last
    column is the checksum of the batch.
    """
    from tailrace.message import Partition, Position
    from tailrace.operations.storage.segments import show_segment

    if "@" in position:
        topic, storage, number, offset = Position.parse(position)
        partition = Partition(topic, storage, number)
    else:
        partition, offset = Partition.parse(position), None
    with context.open_hub() as hub:
        context.show(show_segment(hub, partition, offset), _segment_text)


def _segment_text(detail: SegmentDetail) -> str:
    segment = detail.segment
    head = facts(
        [
            ("partition", segment.partition),
            ("offsets", f"{segment.base:,} to {segment.end - 1:,}"),
            ("messages", f"{segment.messages:,} ({size(segment.bytes)})"),
            ("state", segment.state),
            *((f"file {n}", f"{f.path} ({size(f.bytes)})") for n, f in enumerate(detail.files, 1)),
            ("batches", f"{detail.batches:,}, the newest:"),
        ]
    )
    return f"{head}\n\n" + table(
        ("first", "last", "position", "bytes", "appended", "newest message", "CRC-32"),
        (
            (
                b.first,
                b.last,
                b.position,
                b.bytes,
                format_time(b.appended),
                format_time(b.newest),
                b.crc,
            )
            for b in detail.newest
        ),
    )


@verb(
    "verify",
    examples="""
    tailrace segment verify
    tailrace segment verify orders
    tailrace segment verify orders/0.3 -o json
    """,
)
@click.argument("where", required=False, metavar="[TOPIC|PARTITION]", shell_complete=complete_topic)
@click.pass_obj
def verify(context: CommandContext, where: str | None) -> None:
    """Read every committed message and list damage.

    The exit status is 1 if there is any.
    """
    from tailrace.operations.storage import segments

    with context.open_hub() as hub, ProgressDisplay() as display:

        def show(done_bytes: int) -> None:
            rate = int(done_bytes / (display.seconds or 1))
            display.show(lambda: f"{size(done_bytes)}, {size(rate)}/s")

        found = segments.verify(hub, where, show)
    context.show(found, _verification_text)
    if found.damages:
        raise click.exceptions.Exit(ExitStatus.ERROR)


def _verification_text(found: Verification) -> str:
    checked = (
        f"{format_amount(found.messages, 'message')} ({size(found.bytes)}) in "
        f"{format_amount(found.partitions, 'partition')}"
    )
    if not found.damages:
        return f"no damage: {checked}"
    head = click.style(
        f"DAMAGED: {format_amount(len(found.damages), 'range')} of {checked}", fg="red"
    )
    rows = ((d.partition, f"{d.first:,} to {d.last:,}", d.reason, d.file) for d in found.damages)
    return f"{head}\n" + table(("partition", "offsets", "damage", "file"), rows)


@verb(
    "compact",
    examples="""
    tailrace segment compact --dry-run
    tailrace segment compact lake.commits
    tailrace segment compact lake.commits/0.0 --yes -o json
    """,
)
@click.argument("where", required=False, metavar="[TOPIC|PARTITION]", shell_complete=complete_topic)
@planned
def compact(hub: Hub, where: str | None) -> PlannedChange:
    """Delete consumed messages, except the last one of every key.

    A full segment is compacted once every registered consumer of its topic, such as a writer of a
    pipeline, has acknowledged all its messages. Topics without a registered consumer are skipped.
    """
    from tailrace.operations.storage import compaction

    plan = compaction.plan_compaction(hub, where)
    return PlannedChange(plan, partial(compaction.compact, hub, where), _report_text)


def _report_text(report: CompactionReport) -> str:
    return "\n".join(report.lines)


segment_command = Noun(
    "segment",
    [list_, show, verify, compact],
    help="List, show, verify and compact the files of topics.",
)
