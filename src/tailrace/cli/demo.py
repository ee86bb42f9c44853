"""`tailrace demo`: the guarantees, seen to hold."""

from __future__ import annotations

from pathlib import Path

import click

from tailrace import demo
from tailrace.cli.command import verb


@verb(
    "demo",
    examples="""
    tailrace demo
    tailrace demo --orders 40000 --sales 20000 --directory /tmp/demo
    """,
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-data"),
    show_default=True,
    help="Where its data goes; what an earlier demo left there is deleted.",
)
@click.option(
    "--orders",
    type=click.IntRange(min=1),
    default=demo.ORDERS,
    show_default=True,
    help="How many messages are pushed to the topic.",
)
@click.option(
    "--sales",
    type=click.IntRange(min=1),
    default=demo.SALES,
    show_default=True,
    help="How many rows go through the pipeline.",
)
def demo_command(directory: Path, orders: int, sales: int) -> None:
    """Watch a topic being re-scaled, and a pipeline meet a bad row.

    The closing table compares what was promised with what was seen; status 1 if they differ.
    """
    raise click.exceptions.Exit(demo.run(directory, orders, sales))
