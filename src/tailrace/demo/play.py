"""The demo from start to end: prepare the directory, play the acts, print the closing table."""

from __future__ import annotations

import shlex
import shutil
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from tailrace.demo import pipeline_act, topic_act
from tailrace.demo.endpoint import act as endpoint_act
from tailrace.demo.endpoint.orders import WebOrders
from tailrace.demo.report import table
from tailrace.demo.sales import Sales
from tailrace.demo.spark_start import spark_in_background
from tailrace.demo.stage import Display
from tailrace.demo.workload import Workload
from tailrace.errors import IncompatibleHub
from tailrace.spark.cluster.master import check_address

MARK: Final = "hub.demo"
"""A directory with this file was made by a demo. The next demo deletes it."""


class _PlayedAct(Protocol):
    """An act that was played."""

    @property
    def WITHOUT(self) -> str:  # noqa: N802
        """How the last column of its rows is calculated."""

    @property
    def commands(self) -> Callable[[Path], list[str]]:
        """Commands that inspect its outcome, in the hub of a directory."""


def play(
    directory: Path, orders: int, deliveries: int, sales: int, display: Display, master: str | None
) -> int:
    """See `tailrace.demo.run`."""
    workload, web_orders, shop_sales = Workload(orders), WebOrders(deliveries), Sales(sales)
    started = time.monotonic()
    check_address(master or "")
    _prepare(directory)
    pipeline_act.set_up(directory)
    played: list[_PlayedAct] = [topic_act]
    with spark_in_background(directory, display, master) as engine:
        rows = topic_act.play_topic(directory, workload, display)
        if endpoint_act.can_deliver():
            rows += endpoint_act.play_endpoint(directory, web_orders, display)
            played.append(endpoint_act)
        else:
            display.say(endpoint_act.SKIPPED)
        rows += pipeline_act.play_pipeline(directory, shop_sales, engine(), display)
        played.append(pipeline_act)
    elapsed_s = time.monotonic() - started
    print(f"\n{table(rows)}\n\n{_closing(directory, played, elapsed_s)}")
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


def _closing(directory: Path, acts: Sequence[_PlayedAct], elapsed_s: float) -> str:
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
