"""The demo from start to end: prepare the directory, play both acts, print the closing table."""

from __future__ import annotations

import shlex
import shutil
import textwrap
import time
from pathlib import Path
from typing import Final

from tailrace.demo import pipeline_act, topic_act
from tailrace.demo.report import table
from tailrace.demo.sales import Sales
from tailrace.demo.spark_start import spark_in_background
from tailrace.demo.stage import Display
from tailrace.demo.workload import Workload
from tailrace.errors import IncompatibleHub
from tailrace.spark.cluster.master import check_address

MARK: Final = "hub.demo"
"""A directory with this file was made by a demo. The next demo deletes it."""


def play(directory: Path, orders: int, sales: int, display: Display, master: str | None) -> int:
    """See `tailrace.demo.run`."""
    workload, shop_sales = Workload(orders), Sales(sales)
    started = time.monotonic()
    check_address(master or "")
    _prepare(directory)
    pipeline_act.set_up(directory)
    with spark_in_background(directory, display, master) as engine:
        rows = topic_act.play_topic(directory, workload, display)
        rows += pipeline_act.play_pipeline(directory, shop_sales, engine(), display)
    print(f"\n{table(rows)}\n\n{_closing(directory, time.monotonic() - started)}")
    return 0 if all(row.held for row in rows) else 1


def _prepare(directory: Path) -> None:
    """Make an empty directory with the mark of a demo. Delete the files of an earlier demo."""
    if (directory / MARK).exists():
        shutil.rmtree(directory)
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise IncompatibleHub(
            f"{directory} was not made by a demo",
            "nothing was changed",
            "name an empty directory, or one that does not exist",
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).write_text("The next `tailrace demo` deletes this directory.\n")


def _closing(directory: Path, elapsed_s: float) -> str:
    acts = (topic_act, pipeline_act)
    explained = [textwrap.fill(act.WITHOUT, 98) for act in acts]
    commands = [f"tailrace --hub {shlex.quote(str(directory))} status"]
    commands += [command for act in acts for command in act.commands(directory)]
    return "\n\n".join(
        [
            "Without Tailrace, calculated from this run:",
            *explained,
            f"Finished in {elapsed_s:.0f} s. Inspect the hub:\n"
            + textwrap.indent("\n".join(commands), "  "),
        ]
    )
