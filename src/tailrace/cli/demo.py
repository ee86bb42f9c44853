"""`tailrace demo`: the guarantees under failures, audited."""

from __future__ import annotations

from pathlib import Path

import click

from tailrace import demo
from tailrace.cli.command import verb
from tailrace.terminal.progress import ProgressDisplay


@verb(
    "demo",
    examples="""
    tailrace demo
    tailrace demo --orders 40000 --deliveries 1200 --sales 20000 --directory /tmp/demo
    tailrace demo --master spark://10.0.0.7:7077
    """,
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-data"),
    show_default=True,
    help="Directory of the demo. Files of an earlier demo are deleted.",
)
@click.option(
    "--orders",
    type=click.IntRange(min=1),
    default=demo.ORDERS,
    show_default=True,
    help="Number of messages to push to the topic.",
)
@click.option(
    "--deliveries",
    type=click.IntRange(min=1),
    default=demo.DELIVERIES,
    show_default=True,
    help="Number of messages to post to the HTTP endpoint.",
)
@click.option(
    "--sales",
    type=click.IntRange(min=1),
    default=demo.SALES,
    show_default=True,
    help="Number of rows to write by the pipeline.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark master of the pipeline.  [default: what Spark is configured with, else local[*]]",
)
def demo_command(
    directory: Path, orders: int, deliveries: int, sales: int, master: str | None
) -> None:
    """Run a demo with failures, and audit the guarantees.

    A topic is scaled while processes push and consume, and some are killed. A subscription posts
    messages to an HTTP endpoint that fails, and one of its workers is frozen. A pipeline meets a
    bad row. The closing table compares the expected numbers with the numbers seen. The exit status
    is 1 if they differ.
    """
    with ProgressDisplay() as display:
        status = demo.run(directory, orders, deliveries, sales, display, master)
    raise click.exceptions.Exit(status)
