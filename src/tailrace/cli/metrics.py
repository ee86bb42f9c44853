"""The option `--metrics` of commands that run something, and the server that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tailrace.settings import load, parse_listen

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.metrics.server import MetricsServer
    from tailrace.reporting.metric import Metric

F = TypeVar("F", bound=Callable[..., Any])


def metrics_option(command: F) -> F:
    """Add the option `--metrics`, the argument `metrics` of a command."""
    return click.option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Serve metrics and health at this address; port 0 is any free one.  "
        "[TAILRACE_METRICS__LISTEN; default: off]",
    )(command)


@contextmanager
def serving(listen: str | None) -> Iterator[MetricsServer | None]:
    """Serve metrics and health during the block, if that is asked for. Print the URL.

    `ConfigError` if the port is in use.
    """
    if listen is None:  # not those of the context, to which an app may still add its hub
        address = load().metrics.listen
    else:
        address = parse_listen(listen, "--metrics")
    if address is None:
        yield None
        return
    # Imported here: most commands serve nothing.
    from tailrace.operations.metrics.server import MetricsServer

    with MetricsServer(address) as server:
        click.echo(f"metrics: {server.url}", err=True)
        yield server


def show_hub(server: MetricsServer | None, hub: Hub, awaited: Metric | None = None) -> None:
    """Serve the metrics of a hub from now on; ready once the metric that is awaited is reported."""
    if server is not None:
        from tailrace.operations.metrics.hub_metrics import HubMetrics

        server.show(HubMetrics(hub, awaited=awaited))
