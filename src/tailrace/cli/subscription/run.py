"""`tailrace subscription run`: run a worker of a subscription in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tailrace.amount import format_amount
from tailrace.cli.app.run import exit_unfinished, ignore, load_from
from tailrace.cli.arguments import subscription_argument
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.cli.metrics import metrics_option, serving, show_hub
from tailrace.cli.terminal.logs import log_json_without_terminal, log_other_libraries
from tailrace.subscription.worker.defaults import CONCURRENCY, DRAIN_TIMEOUT, TIMEOUT
from tailrace.terminal.signals import Signals, interrupt

if TYPE_CHECKING:
    from tailrace.operations.subscription.run import WorkerReport
    from tailrace.subscription.worker.worker import Worker


@verb(
    "run",
    examples="""
    tailrace subscription run mailer shop.mail:send
    tailrace subscription run mailer shop/mail.py:send --concurrency 64 --timeout 5s
    tailrace subscription run crm
    """,
)
@subscription_argument
@click.argument("handler", metavar="[MODULE:FUNCTION|FILE:FUNCTION]", required=False)
@click.option(
    "--concurrency",
    type=int,
    default=CONCURRENCY,
    show_default=True,
    help="Maximum number of calls at a time; one of each key.",
)
@click.option(
    "--timeout",
    metavar="DURATION",
    help=f"A call of the handler that takes longer has failed.  [default: {TIMEOUT}]",
)
@click.option(
    "--drain-timeout",
    metavar="DURATION",
    default=DRAIN_TIMEOUT,
    show_default=True,
    help="How long to wait for the calls in flight when the worker is stopped.",
)
@click.option("--id", metavar="NAME", help="Name of the worker, for people.")
@metrics_option
@click.pass_obj
def run(
    context: CommandContext,
    /,
    subscription: str,
    handler: str | None,
    metrics: str | None,
    **options: Any,
) -> None:
    """Run a worker of a subscription in this process.

    Without a handler it delivers to the endpoint of the subscription, with the timeout that is
    stored there. A handler is a Python function or coroutine function of one argument, a Delivery;
    the annotation Delivery[Order] is the type of its value.

    Any number of workers share the messages: run the
    command in as many processes as wanted, on every machine that has the hub. To run the handlers
    of several subscriptions, declare them in an App.

    Ctrl-C or SIGTERM stops the worker after its calls in flight. If a call takes longer than
    --drain-timeout, or its outcome cannot be stored, the exit status is 3 and its message is
    redelivered. A second signal stops the worker at once.

    With --metrics, /metrics has the calls, the backlog and the age of the oldest message, in the
    format of Prometheus, /healthz answers while the command runs, and /readyz once the worker has
    joined.
    """
    from tailrace.operations.app.load import load_handler
    from tailrace.operations.subscription.run import run_worker

    log_json_without_terminal()
    function = None if handler is None else load_from(handler, load_handler)
    log_other_libraries()
    with serving(metrics) as server, Signals(interrupt) as signals:

        def started(worker: Worker) -> None:
            signals.received = ignore  # From now on, the signals are those of the worker.
            click.echo(_started_text(worker, options), err=True)

        try:
            with context.open_hub() as hub:

                def worker_started(worker: Worker) -> None:
                    show_hub(server, hub)
                    started(worker)

                report = run_worker(hub, subscription, function, worker_started, **options)
                context.show(report, _report_text)
        except KeyboardInterrupt:
            click.echo("stopped before the worker started", err=True)
            return
    if not report.drained:
        exit_unfinished()


def _started_text(worker: Worker, options: dict[str, Any]) -> str:
    calls = format_amount(options["concurrency"], "call")
    return (
        f"{worker.subscription}: worker {worker.id} runs, up to {calls} at a time;"
        f" Ctrl-C or SIGTERM stops it after its calls in flight"
    )


def _report_text(report: WorkerReport) -> str:
    counts = f"{report.succeeded:,} succeeded, {report.failed:,} failed"
    if report.rejected:
        counts += f", {report.rejected:,} rejected"
    text = f"{report.subscription}: worker {report.worker} stopped; {counts}"
    if report.in_flight:
        calls = format_amount(report.in_flight, "call")
        text += f"; {calls} did not end in time, the messages will be redelivered"
    elif not report.drained:
        text += "; not all outcomes were stored, these messages will be redelivered"
    return text
