"""`tailrace pipeline run`: run a pipeline in this process until it is stopped."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.metrics import metrics_option, serving, show_hub
from tailrace.cli.terminal.logs import log_json_without_terminal, log_other_libraries
from tailrace.cli.terminal.stopping import stop_then_exit
from tailrace.terminal.signals import Signals, interrupt

if TYPE_CHECKING:
    from tailrace.operations.metrics.server import MetricsServer
    from tailrace.pipeline.pipeline import Pipeline
    from tailrace.pipeline.report import RunReport
    from tailrace.pipeline.run import PipelineRun


@verb(
    "run",
    examples="""
    tailrace pipeline run lake.toml
    tailrace pipeline run lake.toml --once
    tailrace pipeline run lake.toml --once --strict
    tailrace pipeline run lake:pipeline --master spark://10.0.0.7:7077
    tailrace pipeline run lake.toml --metrics 9464
    """,
)
@click.argument("file", metavar="FILE|MODULE:ATTRIBUTE")
@click.option("--once", is_flag=True, help="Stop when the rows present at the start are delivered.")
@click.option("--allow-empty", is_flag=True, help="With --once, accept a source without any data.")
@click.option("--strict", is_flag=True, help="Exit with status 4 if a line could not be read.")
@click.option(
    "--wait",
    metavar="DURATION",
    help="How long a writer waits for a sink that cannot be reached, before it fails.  "
    "[default: without end; 10m with --once]",
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark master.  [default: what Spark is configured with, else local[*]]",
)
@click.option(
    "--conf",
    metavar="NAME=VALUE",
    multiple=True,
    help="Setting of Spark, such as spark.executor.memory=2g; replaces that of the file. "
    "Repeatable.",
)
@click.option("--verbose", is_flag=True, help="Print Spark's log instead of writing it to a file.")
@metrics_option
@click.pass_obj
def run(
    context: CommandContext,
    file: str,
    once: bool,
    allow_empty: bool,
    strict: bool,
    wait: str | None,
    master: str | None,
    conf: tuple[str, ...],
    verbose: bool,
    metrics: str | None,
) -> None:
    """Run a pipeline: read its source and write to its sinks.

    A writer whose sink cannot be reached waits for it and tries again, at the start too; the other
    writers continue. A sink that refuses its writer, for example for a wrong password, is an error.

    Progress goes to standard error. Ctrl-C or SIGTERM stops the pipeline after the writers finish
    their current batch. If that takes longer than the pipeline's stop_timeout, the exit status is 3
    and the batch is delivered again at the next start. A second signal stops it at once. The exit
    status is also 3 if a writer waited when it was stopped.

    If no file matches the reader's path, the command waits for one; with --once it exits with
    status 1, unless --allow-empty is given. Lines that cannot be read become dead letters; the
    closing text counts them.

    The exit status is 1 if the reader or a writer failed, or if the Spark master cannot be reached,
    and 2 if the pipeline could not start for another reason.

    With --metrics, /metrics has the rows, the lag and the state of each writer, in the format of
    Prometheus, /healthz answers while the command runs, and /readyz once the writers have started.
    """
    signals = Signals(interrupt)
    try:
        with signals, serving(metrics) as server:
            report = _run(
                context, signals, server, file, once, allow_empty, wait, master, conf, verbose
            )
    except KeyboardInterrupt:
        click.echo("stopped before the pipeline started", err=True)
        return
    _exit(report, strict=strict)


def _run(
    context: CommandContext,
    signals: Signals,
    server: MetricsServer | None,
    file: str,
    once: bool,
    allow_empty: bool,
    wait: str | None,
    master: str | None,
    conf: tuple[str, ...],
    verbose: bool,
) -> RunReport:
    """Run the pipeline and show its report. A signal before it starts is a KeyboardInterrupt."""
    from tailrace.duration import parse_duration
    from tailrace.operations.pipeline.load import load_definition
    from tailrace.pipeline.definition.spark_settings import read_spark_argument
    from tailrace.pipeline.preflight import check
    from tailrace.pipeline.report import RunOutcome
    from tailrace.pipeline.report_text import report_text
    from tailrace.source.reader import Until
    from tailrace.telemetry import PIPELINE_RUNNING

    log_json_without_terminal()
    pipeline = load_definition(file)
    log_other_libraries()
    longest = None if wait is None else parse_duration(wait, "--wait")
    settings = dict(read_spark_argument(each, "--conf") for each in conf)
    if not context.has_hub:
        # Checked first, so that no hub is created for a pipeline that cannot start.
        path = context.settings.hub.path
        check(pipeline.definition, path, allow_empty=allow_empty or not once)
    until = Until.NOW if once else Until.STOPPED
    with context.create_hub() as hub:
        show_hub(server, hub, PIPELINE_RUNNING)
        prepared = pipeline.prepare(
            hub,
            until=until,
            allow_empty=allow_empty,
            wait=longest,
            master=master,
            spark=settings,
            verbose=verbose,
        )
        try:
            report = _attend(context, pipeline, prepared, signals)
            context.show(report, report_text)
            if report.outcome is RunOutcome.UNFINISHED:
                _exit_now(ExitStatus.STOPPED)
        finally:
            _stop_spark()
    return report


def _attend(
    context: CommandContext, pipeline: Pipeline, run: PipelineRun, signals: Signals
) -> RunReport:
    """Run to the end, while progress is shown. The first signal stops the run, the second at once.

    Raise the error that kept the run from starting.
    """
    from tailrace.pipeline.display import RunDisplay
    from tailrace.pipeline.report_text import progress_text

    def stop() -> None:
        if not pipeline.stop():
            run.stop()  # It has not begun.

    seconds = run.definition.settings.stop_timeout.total_seconds()
    on_stop = f"stopping within {seconds:g} s; a second signal stops it at once"
    at_once = "stopped at once; the unfinished batch will be delivered again"
    signals.received = stop_then_exit(signals, stop, at_once)
    display = RunDisplay(
        line=lambda progress: context.as_line(progress).decode(),
        text=lambda progress: context.text(progress_text(progress)),
        on_stop=on_stop,
    )
    with display:
        return pipeline.attend(run, display)


def _exit(report: RunReport, *, strict: bool) -> None:
    """End the command with the status of a run that has ended."""
    from tailrace.pipeline.report import RunOutcome

    if report.outcome is RunOutcome.FAILED:
        raise click.exceptions.Exit(ExitStatus.ERROR)
    if report.outcome is RunOutcome.WAITING:
        raise click.exceptions.Exit(ExitStatus.STOPPED)
    if strict and report.unreadable:
        raise click.exceptions.Exit(ExitStatus.NOT_WELL)


def _stop_spark() -> None:
    """Stop the Spark session of this run, if it has started one."""
    if "tailrace.spark.session" in sys.modules:
        from tailrace.spark.session import stop_started

        stop_started()


def _exit_now(status: ExitStatus) -> None:
    """End the process without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
