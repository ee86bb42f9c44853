"""`tailrace pipeline status`: the state, progress and lag of writers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import complete_pipeline
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.pipeline.describe import PipelineView, WriterView
    from tailrace.operations.pipeline.namespaces import NamespaceOffsets


@verb(
    "status",
    examples="""
    tailrace pipeline status
    tailrace pipeline status lake --watch
    tailrace pipeline status lake --namespaces
    """,
)
@click.argument("name", required=False, shell_complete=complete_pipeline)
@click.option("--namespaces", is_flag=True, help="Show the progress by namespace.")
@watches
@click.pass_obj
def status(context: CommandContext, name: str | None, namespaces: bool, watch: bool) -> None:
    """Show the state, progress and lag of each writer.

    The lag of a writer is the number of records that it has not acknowledged. --namespaces reads
    the whole commit log.
    """
    if namespaces and name is None:
        raise click.UsageError("--namespaces requires the NAME of a pipeline")
    with context.open_hub() as hub:
        if namespaces:
            from tailrace.operations.pipeline.namespaces import namespace_offsets

            chosen = str(name)
            show_once_or_watch(
                lambda: context.show(namespace_offsets(hub, chosen), _namespaces_table), watch=watch
            )
            return
        views = _views(hub, name)
        show_once_or_watch(lambda: context.show(next(views), _status_text), watch=watch)


def _views(hub: Hub, name: str | None) -> Iterator[list[PipelineView]]:
    """Yield views of the pipelines, with rates from the second on."""
    from tailrace.operations.pipeline.describe import view_pipelines, with_rates

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
        return "no pipelines; create one: tailrace pipeline init READER WRITER"
    return "\n\n".join(map(_pipeline_text, views))


def _pipeline_text(view: PipelineView) -> str:
    runs = f"running: {view.running}" if view.running else _stopped_text(view)
    lines = [f"{click.style(view.name, bold=True)}  {runs}; {view.reader} -> {view.commit_log}"]
    if view.reader_failed is not None:
        failed = click.style(f"reader FAILED at {view.reader_failed:%H:%M:%S}Z", fg="red")
        lines.append(f"  {failed}: {view.reader_error}")
        lines.append(f"  fix the cause, then run it again: {view.run_command}")
    if view.start_error is not None:
        lines.append(f"  {click.style('DID NOT START', fg='red')}: {view.start_error}")
        lines.append(f"  fix the cause, then run it again: {view.run_command}")
    if view.reader_waits is not None:
        lines.append(f"  reader waits: {view.reader_waits}")
    if view.source is not None:
        lines.append(f"  source {view.source} {view.source_state}: tailrace explain {view.source}")
    if view.unreadable:
        letters = format_amount(view.unreadable, "pending dead letter")
        lines.append(f"  reader: {letters}: tailrace dlq {view.name} list --by error")
    if view.reader_blocked:
        lines.append(f"  reader waits for {view.slowest}: tailrace explain {view.slowest}")
    watched = any(writer.rows_per_second is not None for writer in view.writers)
    headings = (
        "writer",
        "state",
        "rows",
        *(["rows/s"] if watched else []),
        "lag",
        "dead letters",
        "",
    )
    lines.append(table(headings, (_writer_row(writer, watched) for writer in view.writers)))
    return "\n".join(lines)


def _stopped_text(view: PipelineView) -> str:
    if view.last_stop is not None:
        text = f"not running since {format_time(view.last_stop)}"
    elif view.last_start is not None:
        text = f"not running, its run of {format_time(view.last_start)} was killed"
    else:
        return "not running"
    return f"{text}, its reader has not finished" if view.reader_unfinished else text


def _writer_row(writer: WriterView, watched: bool) -> tuple[object, ...]:
    from tailrace.pipeline.report import format_wait

    rate = [round(writer.rows_per_second or 0)] if watched else []
    problem = ""
    if writer.error is not None:
        at = f"{writer.position}: " if writer.position else ""
        problem = f"{at}{writer.error}"
        if writer.next_try is not None:
            problem = format_wait(writer.since, writer.next_try, writer.error)
        problem += f"  tailrace explain {writer.name}"
    state = writer.state.value
    return (writer.name, state, writer.rows, *rate, writer.lag, writer.dead_letters, problem)


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
