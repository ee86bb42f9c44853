"""`tailrace bench`: what this machine does in a second."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.command import verb
from tailrace.cli.session import Session
from tailrace.cli.tables import size, table

if TYPE_CHECKING:
    from tailrace.operations.bench import Measurement


@verb(
    "bench",
    examples="""
    tailrace bench
    tailrace bench --seconds 2 --hub /mnt/fast/data
    tailrace bench -o json
    """,
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 60),
    default=0.5,
    show_default=True,
    help="How long each row is measured.",
)
@click.pass_obj
def bench_command(session: Session, seconds: float) -> None:
    """Measure pushing and reading on this machine.

    It works on the disk of the hub, beside it, and touches nothing in it.

    Messages have 100 bytes and 1,000 keys, over 4 partitions.
    """
    from tailrace.operations.bench import bench

    path = Path(session.settings.hub.path).absolute()
    directory = next(each for each in path.parents if each.is_dir())
    measured = []
    for each in bench(directory, seconds):
        measured.append(each)
        if sys.stderr.isatty():
            click.echo(f"\r{each.name}\x1b[K", err=True, nl=False)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    session.show(measured, _measurements_table)


def _measurements_table(measured: list[Measurement]) -> str:
    return table(
        ("work", "per second", "", "throughput"),
        (
            (m.name, round(m.per_second), m.unit, f"{size(round(m.bytes_per_second))}/s")
            for m in measured
        ),
    )
