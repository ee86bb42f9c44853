"""`tailrace source run`: run one task of a source in this process until it is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.app.run import ignore
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.metrics import metrics_option, serving, show_hub
from tailrace.cli.terminal.logs import log_json_without_terminal, log_other_libraries
from tailrace.cli.terminal.stopping import stop_then_exit
from tailrace.terminal.signals import Signals, interrupt

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.metrics.server import MetricsServer
    from tailrace.source.reader import Until
    from tailrace.source.report import SourceReport
    from tailrace.source.source import Source


@verb(
    "run",
    examples="""
    tailrace source run shop.toml
    tailrace source run shop.toml --once
    tailrace source run shop:source --once --strict
    tailrace source run shop.toml --metrics 9464
    """,
)
@click.argument("file", metavar="FILE|MODULE:ATTRIBUTE")
@click.option("--once", is_flag=True, help="Stop when all tasks have read what was there at first.")
@click.option("--allow-empty", is_flag=True, help="With --once, accept a source without any data.")
@click.option("--strict", is_flag=True, help="Exit with status 4 if a record could not be read.")
@metrics_option
@click.pass_obj
def run(
    context: CommandContext,
    file: str,
    once: bool,
    allow_empty: bool,
    strict: bool,
    metrics: str | None,
) -> None:
    """Run one task of a source.

    It reads the source into its commit log.

    Run the command in as many processes as wanted, on the host of the hub: the tasks share the
    splits of the source. When one ends or dies, the others take its splits. FILE may also
    be that of a pipeline whose reading is shared.

    Progress goes to standard error. Ctrl-C or SIGTERM stops the task after the batch in progress; a
    second signal stops it at once, with exit status 3. The exit status is also 3 if --once was
    stopped before everything was read, or if the hub or the source did not answer when it was
    stopped.

    If there is nothing to read yet, the task waits for it; with --once it exits with status 1,
    unless --allow-empty is given. Records that cannot be read become dead letters.

    The exit status is 1 if the source cannot be read, and 2 if it is not defined correctly.

    With --metrics, /metrics has the rows that the task has read, in the format of Prometheus,
    /healthz answers while the command runs, and /readyz once the task has joined.
    """
    signals = Signals(interrupt)
    try:
        with signals, serving(metrics) as server:
            report = _run(context, signals, server, file, once, allow_empty)
    except KeyboardInterrupt:
        click.echo("stopped before the source started", err=True)
        return
    _exit(report, once=once, strict=strict)


def _run(
    context: CommandContext,
    signals: Signals,
    server: MetricsServer | None,
    file: str,
    once: bool,
    allow_empty: bool,
) -> SourceReport:
    """Run the task and show its report. A signal before it starts is a KeyboardInterrupt."""
    from tailrace.operations.source.load import load_source_definition
    from tailrace.source.display import source_report_text
    from tailrace.source.reader import Until
    from tailrace.telemetry import SOURCE_ROWS

    log_json_without_terminal()
    source = load_source_definition(file)
    log_other_libraries()
    if not context.has_hub:
        # Checked first, so that no hub is created for a source that cannot be read.
        source.preflight(None, allow_empty=allow_empty or not once)
    until = Until.NOW if once else Until.STOPPED
    with context.create_hub() as hub:
        show_hub(server, hub, SOURCE_ROWS)
        report = _attend(context, hub, source, until, allow_empty, signals)
        context.show(report, source_report_text)
    return report


def _attend(
    context: CommandContext,
    hub: Hub,
    source: Source,
    until: Until,
    allow_empty: bool,
    signals: Signals,
) -> SourceReport:
    """Run to the end, while progress is shown. The first signal stops the run, the second at once.

    Raise the error that ended it.
    """
    from tailrace.source.display import SourceDisplay, source_progress_text

    def stop() -> None:
        if not source.stop():
            interrupt()  # It has not begun.

    at_once = "stopped at once; what was read and not stored will be read again"
    signals.received = stop_then_exit(signals, stop, at_once)
    display = SourceDisplay(
        line=lambda progress: context.as_line(progress).decode(),
        text=lambda progress: context.text(source_progress_text(progress)),
        on_stop="stopping; a second signal stops it at once",
    )
    with display:
        report = source.attend(hub, until, allow_empty, display)
        signals.received = ignore
    return report


def _exit(report: SourceReport, *, once: bool, strict: bool) -> None:
    """End the command with the status of a run that has ended."""
    from tailrace.source.report import SourceOutcome

    stopped = report.outcome is SourceOutcome.STOPPED
    if stopped and (once or report.retrying is not None):
        raise click.exceptions.Exit(ExitStatus.STOPPED)
    if strict and report.bad:
        raise click.exceptions.Exit(ExitStatus.NOT_WELL)
