"""`tailrace queue replay`: replay messages of a queue, by the time at which they were pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tailrace.amount import format_amount
from tailrace.cli.app.run import load_from
from tailrace.cli.arguments import queue_argument
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.terminal.progress import ProgressDisplay
from tailrace.terminal.signals import Signals
from tailrace.terminal.tables import format_time, table

if TYPE_CHECKING:
    from tailrace.hub.replay import Replay
    from tailrace.operations.queue.replay import ReplayReport


@verb(
    "replay",
    examples="""
    tailrace queue replay thumbnails --from 2026-01-31T08:00Z --to 2026-01-31T09:00Z
    tailrace queue replay thumbnails --from 2026-01-31T08:00Z --handler shop.jobs:render
    tailrace queue replay thumbnails --list
    tailrace queue replay thumbnails --resume 20260131-1f3a
    tailrace queue replay thumbnails --cancel 20260131-1f3a
    """,
)
@queue_argument
@click.option("--from", "start", metavar="TIME", help="First time of the range (UTC).")
@click.option("--to", "end", metavar="TIME", help="Time after the range (UTC).  [default: now]")
@click.option("--handler", metavar="MODULE:FUNCTION", help="Call this handler with the messages.")
@click.option("--id", metavar="NAME", help="Name of the replay.  [default: random]")
@click.option("--resume", metavar="ID", help="Continue a replay in this process.")
@click.option("--cancel", metavar="ID", help="End a replay in all processes.")
@click.option("--list", "listed", is_flag=True, help="List the replays of the queue.")
@click.pass_obj
def replay(context: CommandContext, /, queue: str, **options: Any) -> None:
    """Replay the messages of a range of time.

    The range is from --from up to, not including, --to. Without --handler the messages are pushed
    again to the queue, marked as replayed, once each and in order per key. With it, the handler is
    called with them in this process, and the queue is not touched; the replay has retries and dead
    letters of its own.

    A replay is stored: if this command is stopped, --resume continues it where it was, also in
    several processes at once. The exit status is then 3.
    """
    chosen = [name for name in ("start", "resume", "cancel", "listed") if options[name]]
    if len(chosen) != 1:
        raise click.UsageError("one of --from, --resume, --cancel and --list is needed")
    for name in ("end", "id"):
        if options[name] is not None and chosen != ["start"]:
            raise click.UsageError(f"--{'to' if name == 'end' else name} needs --from")
    if options["handler"] is not None and chosen[0] in ("cancel", "listed"):
        raise click.UsageError("--handler needs --from or --resume")
    if options["listed"]:
        _list(context, queue)
    elif options["cancel"]:
        _cancel(context, queue, options["cancel"])
    else:
        _work(context, queue, options)


def _list(context: CommandContext, queue: str) -> None:
    from tailrace.operations.queue.replay import list_replays

    with context.open_hub() as hub:
        context.show(list_replays(hub, queue), _replays_table)


def _cancel(context: CommandContext, queue: str, id: str) -> None:
    from tailrace.operations.queue.replay import cancel_replay

    with context.open_hub() as hub:
        context.show(cancel_replay(hub, queue, id), _report_text)


def _work(context: CommandContext, queue: str, options: dict[str, Any]) -> None:
    from tailrace.operations.app.load import load_handler
    from tailrace.operations.queue.replay import begin_replay, progress_text, resume_replay

    given = options["handler"]
    handler = None if given is None else load_from(given, load_handler)
    with Signals() as signals, ProgressDisplay() as display:

        def observe(running: Replay) -> bool:
            def text() -> str:
                return progress_text(f"{queue}, replay {running.id}", running.progress())

            display.show(text, text)
            return not signals.count

        with context.open_hub() as hub:
            if options["resume"]:
                id = options["resume"]
                report = resume_replay(hub, queue, id, handler=handler, observe=observe)
            else:
                report = begin_replay(
                    hub,
                    queue,
                    start=options["start"],
                    end=options["end"],
                    id=options["id"],
                    handler=handler,
                    observe=observe,
                )
            display.clear()
            context.show(report, _report_text)
    if report.state == "running":
        raise click.exceptions.Exit(ExitStatus.STOPPED)


def _report_text(report: ReplayReport) -> str:
    from tailrace.operations.queue.replay import letters_command, resume_command

    text = f"{report.queue}, replay {report.id}: {report.state}, {report.done:,} replayed"
    if report.state == "running":
        command = resume_command(report.queue, report.id, has_handler=report.has_handler)
        return f"{text}, {report.left + report.retrying:,} left; to continue: {command}"
    if report.dead:
        command = letters_command(report.queue, report.id)
        text += f", {format_amount(report.dead, 'dead letter')}; to list them: {command}"
    return text


def _replays_table(reports: list[ReplayReport]) -> str:
    if not reports:
        return "no replays; begin one: tailrace queue replay NAME --from TIME"
    return table(
        ("replay", "state", "from", "to", "with", "replayed", "left", "dead", "by"),
        (
            (
                each.id,
                each.state,
                format_time(each.start),
                format_time(each.end),
                "a handler" if each.has_handler else "pushes",
                each.done,
                each.left + each.retrying,
                each.dead,
                each.by,
            )
            for each in reports
        ),
    )
