"""`tailrace pipeline`: how pipelines are, and what their commit logs hold."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.amount import format_amount
from tailrace.cli.command import Noun, verb
from tailrace.cli.pipeline_arguments import complete_pipeline
from tailrace.cli.pipeline_changes import ack, forget, retry, rewind
from tailrace.cli.pipeline_init import init
from tailrace.cli.pipeline_run import run
from tailrace.cli.pipeline_test import test
from tailrace.cli.session import Output, Session
from tailrace.cli.tables import table
from tailrace.cli.tail import compile_format
from tailrace.cli.watching import show_once_or_watch, watches

if TYPE_CHECKING:
    from tailrace.message import Message
    from tailrace.operations.namespaces import NamespaceOffsets
    from tailrace.operations.pipelines import PipelineView, WriterView

_LINE: Final = r"%o\t%t\t%m\t%c\t%k\t%v"


@verb(
    "status",
    examples="""
    tailrace pipeline status
    tailrace pipeline status lake --watch
    tailrace pipeline status lake --namespaces
    """,
)
@click.argument("name", required=False, shell_complete=complete_pipeline)
@click.option("--namespaces", is_flag=True, help="How far each writer is in each namespace.")
@watches
@click.pass_obj
def status(session: Session, name: str | None, namespaces: bool, watch: bool) -> None:
    """Show what each writer does, and how far it is.

    A writer is behind by the records that it has not acknowledged. --namespaces reads the whole
    commit log.
    """
    if namespaces and name is None:
        raise click.UsageError("--namespaces needs the NAME of a pipeline")
    with session.open_hub() as hub:
        if namespaces:
            from tailrace.operations.namespaces import namespace_offsets

            chosen = str(name)
            show_once_or_watch(
                lambda: session.show(namespace_offsets(hub, chosen), _namespaces_table), watch=watch
            )
            return
        looks = _looks(hub, name)
        show_once_or_watch(lambda: session.show(next(looks), _status_text), watch=watch)


def _looks(hub: Any, name: str | None) -> Iterator[list[PipelineView]]:
    """One look after the other, with rates from the second on."""
    from tailrace.operations.pipelines import view_pipelines, with_rates

    rows: dict[str, int] = {}
    at = time.monotonic()
    while True:
        views = view_pipelines(hub, name)
        now = time.monotonic()
        yield with_rates(views, rows, now - at) if rows else views
        rows = {writer.name: writer.rows for view in views for writer in view.writers}
        at = now


def _status_text(views: list[PipelineView]) -> str:
    if not views:
        return "no pipelines were run here; begin one: tailrace pipeline init READER WRITER"
    return "\n\n".join(map(_pipeline_text, views))


def _pipeline_text(view: PipelineView) -> str:
    runs = f"runs: {view.running}" if view.running else "does not run"
    lines = [f"{click.style(view.name, bold=True)}  {runs}; {view.reader} -> {view.commit_log}"]
    if view.reader_failed is not None:
        failed = click.style(f"the reader FAILED at {view.reader_failed:%H:%M:%S}Z", fg="red")
        lines.append(f"  {failed}: {view.reader_error}")
        lines.append("  see to it, then go on: tailrace pipeline run FILE")
    if view.unreadable:
        letters = format_amount(view.unreadable, "dead letter")
        lines.append(f"  {letters} could not be read: tailrace dlq {view.name} list --by error")
    if view.reader_held:
        lines.append(f"  the reader waits for {view.slowest}: tailrace explain {view.slowest}")
    watched = any(writer.rows_per_second is not None for writer in view.writers)
    headings = (
        "writer",
        "state",
        "rows",
        *(["rows/s"] if watched else []),
        "behind",
        "dead letters",
        "",
    )
    lines.append(table(headings, (_writer_row(writer, watched) for writer in view.writers)))
    return "\n".join(lines)


def _writer_row(writer: WriterView, watched: bool) -> tuple[object, ...]:
    rate = [round(writer.rows_per_second or 0)] if watched else []
    trouble = ""
    if writer.error is not None:
        at = f"{writer.position}: " if writer.position else ""
        trouble = f"{at}{writer.error}  tailrace explain {writer.name}"
    state = writer.state.value
    return (writer.name, state, writer.rows, *rate, writer.behind, writer.dead_letters, trouble)


def _namespaces_table(rows: list[NamespaceOffsets]) -> str:
    return table(
        ("writer", "partition", "namespace", "acknowledged", "waiting", "holes"),
        (
            (
                row.writer,
                row.partition,
                row.namespace,
                "-" if row.acknowledged is None else str(row.acknowledged),
                row.waiting,
                " ".join(map(str, row.holes)),
            )
            for row in rows
        ),
    )


@verb(
    "log",
    examples=r"""
    tailrace pipeline log lake --from 14 --to 15
    tailrace pipeline log lake --from -100 --namespace /^public[.]/
    tailrace pipeline log lake --from 14 --to 14 -f '%o %m %c %k %v'
    tailrace pipeline log lake --from @2026-01-01T00:00Z -o json
    """,
)
@click.argument("name", shell_complete=complete_pipeline)
@click.option("--from", "start", metavar="PLACE", default="earliest", help="Where to begin.")
@click.option("--to", "end", metavar="PLACE", default="latest", help="Where to end, with it.")
@click.option("--namespace", metavar="FILTER", help="A name, or a /regular expression/.")
@click.option("-f", "--format", "text", metavar="FORMAT", help="How to print, as tail has it.")
@click.pass_obj
def log(
    session: Session, name: str, start: str, end: str, namespace: str | None, text: str | None
) -> None:
    """Print records of a commit log.

    A line has offset, time, mode, op, namespace and value.

    PLACE is an offset, where the log has one partition, or what tailrace tail takes.
    """
    from tailrace.operations.pipeline_log import read_log

    if text is not None and session.output is Output.JSON:
        raise click.UsageError("-f and -o json exclude each other")
    in_json = session.output is Output.JSON
    write = _json_line if in_json else compile_format(_LINE if text is None else text)
    out = sys.stdout.buffer
    with session.open_hub() as hub:
        for some in read_log(hub, name, start, end, namespace):
            out.write(b"".join([write(message) for message in some]))
    out.flush()


def _json_line(message: Message[Any]) -> bytes:
    import msgspec

    from tailrace.operations.pipeline_log import view_record

    return msgspec.json.encode(view_record(message)) + b"\n"


pipeline_command = Noun(
    "pipeline",
    [init, test, run, status, log, retry, ack, rewind, forget],
    help="Run pipelines, see how they are, and help their writers on.",
)
