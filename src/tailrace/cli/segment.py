"""`tailrace segment`: the files under a topic, whether they are whole, and compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import complete_topic
from tailrace.cli.asking import asks, carry_out
from tailrace.cli.command import Noun, verb
from tailrace.cli.progress import progress
from tailrace.cli.session import ExitStatus, Output, Session
from tailrace.cli.tables import facts, moment, size, table

if TYPE_CHECKING:
    from tailrace.operations.compaction import CompactionReport
    from tailrace.operations.segments import SegmentDetail, SegmentSummary, Verification


@verb(
    "list",
    examples="""
    tailrace segment list
    tailrace segment list orders
    tailrace segment list orders/1.7 -o json
    """,
)
@click.argument("where", required=False, shell_complete=complete_topic)
@click.pass_obj
def list_(session: Session, where: str | None) -> None:
    """List the segments of the hub, of a topic or of a partition."""
    from tailrace.operations.segments import list_segments

    with session.open_hub() as hub:
        session.show(list_segments(hub, where), _segments_table)


def _segments_table(segments: list[SegmentSummary]) -> str:
    if not segments:
        return "no segments: nothing was pushed yet"
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
@click.argument("place", metavar="PARTITION[@OFFSET]")
@click.pass_obj
def show(session: Session, place: str) -> None:
    """Show a segment: its files and its newest batches.

    Without an offset it is the newest segment of the partition, else the one that holds it. The
    last column of its batches is the checksum of their bytes.
    """
    from tailrace.message import Partition, Position
    from tailrace.operations.segments import show_segment

    if "@" in place:
        topic, storage, number, offset = Position.parse(place)
        partition = Partition(topic, storage, number)
    else:
        partition, offset = Partition.parse(place), None
    with session.open_hub() as hub:
        session.show(show_segment(hub, partition, offset), _segment_text)


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
            (b.first, b.last, b.position, b.bytes, moment(b.appended), moment(b.newest), b.crc)
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
@click.argument("where", required=False, shell_complete=complete_topic)
@click.pass_obj
def verify(session: Session, where: str | None) -> None:
    """Read all that is committed and list what is damaged.

    The exit status is 1 when anything is.
    """
    from tailrace.operations import segments

    with (
        session.open_hub() as hub,
        progress(
            lambda done, seconds: f"{size(done)}, {size(int(done / (seconds or 1)))}/s"
        ) as tell,
    ):
        found = segments.verify(hub, where, tell)
    session.show(found, _verification_text)
    if found.damages:
        raise click.exceptions.Exit(ExitStatus.ERROR)


def _verification_text(found: Verification) -> str:
    checked = (
        f"{format_amount(found.messages, 'message')} ({size(found.bytes)}) in "
        f"{format_amount(found.partitions, 'partition')}"
    )
    if not found.damages:
        return f"whole: {checked}"
    head = click.style(
        f"DAMAGED: {format_amount(len(found.damages), 'place')} of {checked}", fg="red"
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
@click.argument("where", required=False, shell_complete=complete_topic)
@asks
@click.pass_obj
def compact(session: Session, where: str | None, yes: bool, dry_run: bool) -> None:
    """Drop consumed messages but the last of every key.

    Segments count as consumed up to where the slowest registered consumer of the topic, such as a
    writer of a pipeline, has acknowledged everything. Topics without one are left alone.
    """
    from tailrace.operations import compaction

    reports: list[CompactionReport] = []

    def change() -> CompactionReport:
        reports.append(compaction.compact(hub, where))
        return reports[0]

    with session.open_hub() as hub:
        plan = compaction.plan_compaction(hub, where)
        carry_out(session, plan, change, yes=yes, dry_run=dry_run)
    if session.output is not Output.JSON:
        for line in (line for report in reports for line in report.lines):
            click.echo(line)


segment_command = Noun(
    "segment",
    [list_, show, verify, compact],
    help="Look into the files of topics, verify and compact them.",
)
