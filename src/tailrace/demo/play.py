"""The demo from beginning to end: make room, play act by act, show what all of it came to."""

from __future__ import annotations

import shutil
import textwrap
import time
from pathlib import Path
from typing import Final

from tailrace.demo import pipeline_act, topic_act
from tailrace.demo.load import Load
from tailrace.demo.report import table
from tailrace.demo.sales import Sales
from tailrace.demo.spark_start import spark_in_background
from tailrace.errors import IncompatibleHub

MARK: Final = "hub.demo"
"""This file in a directory says that the next demo may delete all of it."""


def play(directory: Path, orders: int, sales: int) -> int:
    """See `tailrace.demo.run`."""
    load, shops = Load(orders), Sales(sales)
    started = time.monotonic()
    _make_room(directory)
    pipeline_act.set_up(directory)
    with spark_in_background(directory) as engine:
        rows = topic_act.play_topic(directory, load)
        rows += pipeline_act.play_pipeline(directory, shops, engine())
    print(f"\n{table(rows)}\n\n{_closing(directory, time.monotonic() - started)}")
    return 0 if all(row.held for row in rows) else 1


def _make_room(directory: Path) -> None:
    """An empty directory with the mark of a demo, in place of what an earlier demo left."""
    if (directory / MARK).exists():
        shutil.rmtree(directory)
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise IncompatibleHub(
            f"{directory} was not made by a demo",
            "it is left as it is",
            "name a directory that is empty or not there yet",
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).write_text("The next `tailrace demo` deletes this directory.\n")


def _closing(directory: Path, elapsed_s: float) -> str:
    acts = (topic_act, pipeline_act)
    reckoned = [textwrap.fill(act.WITHOUT, 98) for act in acts]
    looks = [f"tailrace --hub {directory} status"]
    looks += [command for act in acts for command in act.commands(directory)]
    return "\n\n".join(
        [
            "Without Tailrace, reckoned from this run:",
            *reckoned,
            f"{elapsed_s:.0f} s. The hub is still there:\n"
            + textwrap.indent("\n".join(looks), "  "),
        ]
    )
