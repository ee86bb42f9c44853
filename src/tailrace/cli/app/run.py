"""`tailrace run`: run an app in this process, or in several that this process supervises."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import click

from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.metrics import metrics_option, serving, show_hub
from tailrace.cli.terminal.logs import log_json_without_terminal, log_other_libraries
from tailrace.errors import ConfigError
from tailrace.subscription.worker.defaults import DRAIN_TIMEOUT
from tailrace.terminal.signals import Signals, interrupt

if TYPE_CHECKING:
    from datetime import timedelta

    from tailrace.app.app import App
    from tailrace.app.running_app import RunningApp
    from tailrace.hub.hub import Hub
    from tailrace.operations.app.activity import Activity
    from tailrace.operations.metrics.server import MetricsServer

T = TypeVar("T")

_ACTIVITY_S: Final = 10.0
"""The least time between two lines with the activity of the app."""


@verb(
    "run",
    examples="""
    tailrace run shop:app
    tailrace run shop/orders.py:app --processes 4
    tailrace run shop:app --only mailer --only thumbnails
    tailrace run shop:app --processes 4 --metrics 9464
    tailrace --hub ./data run shop:app --drain-timeout 1m
    """,
)
@click.argument("app", metavar="MODULE:APP|FILE:APP")
@click.option(
    "--processes",
    metavar="NUMBER",
    type=click.IntRange(1),
    default=1,
    help="Number of processes.  [default: 1]",
)
@click.option(
    "--only", metavar="NAME", multiple=True, help="Run only this queue or subscription. Repeatable."
)
@click.option(
    "--drain-timeout",
    metavar="DURATION",
    default=DRAIN_TIMEOUT,
    show_default=True,
    help="How long to wait for the calls in flight after SIGTERM.",
)
@metrics_option
@click.option("--supervisor", type=int, hidden=True, help="Descriptor of the supervisor's link.")
@click.pass_obj
def run_command(
    context: CommandContext,
    app: str,
    processes: int,
    only: tuple[str, ...],
    drain_timeout: str,
    metrics: str | None,
    supervisor: int | None,
) -> None:
    """Run an app: call the handlers of its queues and subscriptions.

    MODULE is imported from the current directory or from the installed packages. Topics, queues and
    subscriptions that the app declares are created. The hub is that of --hub, of the app, of the
    environment or of tailrace.toml, in this order.

    With --processes, this process supervises as many others. A process that ends is started again
    after a delay. An error of the app itself, for example a topic that does not exist, ends the
    command.

    Ctrl-C or SIGTERM drains: no handler is called any more, and the calls in flight have the drain
    timeout to end. The exit status is 3 if some did not: their messages are redelivered. A second
    signal ends the command at once. If the supervisor is killed, its processes drain.

    With --metrics, /metrics answers for all processes, in the format of Prometheus, /healthz while
    the command runs, and /readyz once every worker has joined.
    """
    from tailrace.duration import parse_duration

    drain = parse_duration(drain_timeout, "--drain-timeout")
    log_json_without_terminal()
    logging.getLogger("tailrace.app").setLevel(logging.INFO)
    if processes > 1:
        arguments = [app, "--drain-timeout", drain_timeout]
        arguments += [argument for name in only for argument in ("--only", name)]
        with serving(metrics) as server:
            status = _supervise(context, arguments, processes, drain, server)
        raise click.exceptions.Exit(status)
    with serving(metrics) as server, Signals(interrupt) as signals:
        try:
            drained = _run(context, signals, app, only or None, drain, supervisor, server)
        except KeyboardInterrupt:
            if supervisor is None:
                click.echo("stopped before the app started", err=True)
            return
        if not drained:
            click.echo("stopped with messages in flight; they will be redelivered", err=True)
            exit_unfinished()


def _run(
    context: CommandContext,
    signals: Signals,
    source: str,
    only: tuple[str, ...] | None,
    drain: timedelta,
    descriptor: int | None,
    server: MetricsServer | None,
) -> bool:
    """Run the app in this process; False if messages are still in flight at the end.

    Until it has started, a signal is a `KeyboardInterrupt`.
    """
    from tailrace.app.attended import run_until_signal
    from tailrace.operations.app.link import SupervisedLink
    from tailrace.operations.app.load import load_app
    from tailrace.operations.app.process import ProcessObserver
    from tailrace.operations.metrics.hub_metrics import HubMetrics

    link = None if descriptor is None else SupervisedLink(descriptor, lost=_terminate)
    observer = ProcessObserver(link, _activity_display() if link is None else None)

    def start(app: App, hub: Hub) -> RunningApp:
        signals.received = ignore  # From now on, the signals are those of the running app.
        running = app.start(hub, only=only, drain_timeout=drain)
        show_hub(server, hub)
        observer.metrics = HubMetrics(hub)
        return running

    try:
        app = load_from(source, load_app)
        log_other_libraries()
        app.chosen(only)
        with _opened(context, app) as hub:
            signals_max = 1 if link is None else None
            return run_until_signal(partial(start, app, hub), observer, signals_max=signals_max)
    except Exception as error:
        observer.failed(error)
        raise


def load_from(source: str, load: Callable[[str], T]) -> T:
    """Load from a user's module. Print the traceback of an error in that module."""
    from tailrace.operations.app.load import user_traceback

    try:
        return load(source)
    except ConfigError as error:
        if error.__cause__ is not None:
            click.echo(user_traceback(error.__cause__), err=True, nl=False)
        raise


def _opened(context: CommandContext, app: App) -> Hub:
    """Open the hub. Create it only if the app declares a topic or a queue."""
    if context.hub_path is None:
        context.hub_path = app.hub
    return context.create_hub() if app.creates_hub else context.open_hub()


def _supervise(
    context: CommandContext,
    arguments: list[str],
    processes: int,
    drain: timedelta,
    server: MetricsServer | None,
) -> int:
    from tailrace.operations.app.process_metrics import ProcessMetrics
    from tailrace.operations.app.supervisor import Supervisor

    options = [] if context.hub_path is None else ["--hub", context.hub_path]
    options += ["--debug"] if context.debug else []

    def command(link: int) -> list[str]:
        # -P: no module of the current directory replaces one of Python or Tailrace.
        program = [sys.executable, "-P", "-m", "tailrace", *options, "run"]
        return [*program, *arguments, "--metrics", "off", "--supervisor", str(link)]

    drain_s, observe = drain.total_seconds(), _activity_display()
    metrics = ProcessMetrics(processes)
    if server is not None:
        server.show(metrics)
    supervisor = Supervisor(command, processes, drain_s=drain_s, observe=observe, metrics=metrics)
    return supervisor.run()


def _activity_display() -> Callable[[Activity], None] | None:
    """Return a function that prints the activity of an app, now and then, if it has changed.

    None if stderr is not a terminal. Nothing is redrawn, because handlers may print, too.
    """
    if not sys.stderr.isatty():
        return None
    from tailrace.operations.app.activity import activity_text

    shown, shown_at = "", time.monotonic()

    def show(activity: Activity) -> None:
        nonlocal shown, shown_at
        text = activity_text(activity)
        if text != shown and time.monotonic() - shown_at >= _ACTIVITY_S:
            shown, shown_at = text, time.monotonic()
            click.echo(text, err=True)

    return show


def ignore() -> None:
    """Handle a signal by doing nothing."""


def exit_unfinished() -> None:
    """End a process that has calls in flight, or outcomes that were not stored.

    Not by `sys.exit`, which would wait for the threads of the calls.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitStatus.STOPPED)


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
