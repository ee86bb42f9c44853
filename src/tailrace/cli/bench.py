"""`tailrace bench`: a quick benchmark of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.progress import ProgressDisplay
from tailrace.terminal.tables import size, table

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
    help="Seconds to measure each row.",
)
@click.pass_obj
def bench_command(context: CommandContext, seconds: float) -> None:
    """Measure pushes and reads on this machine.

    The benchmark uses a temporary directory beside the hub, on the same disk. The hub is not
    changed. Messages have 100 bytes and 1,000 keys, in 4 partitions.
    """
    from tailrace.operations.bench import bench

    path = Path(context.settings.hub.path).absolute()
    directory = next(each for each in path.parents if each.is_dir())
    measured: list[Measurement] = []
    with ProgressDisplay() as display:
        for each in bench(directory, seconds):
            measured.append(each)
            display.show(lambda: _measurements_table(measured))
    context.show(measured, _measurements_table)


def _measurements_table(measured: list[Measurement]) -> str:
    return table(
        ("operation", "per second", "", "throughput"),
        (
            (m.name, round(m.per_second), m.unit, f"{size(round(m.bytes_per_second))}/s")
            for m in measured
        ),
    )
