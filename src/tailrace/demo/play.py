"""The demo from beginning to end: make room, push with accidents, read and audit, tell."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import tailrace
from tailrace.demo.audit import audited
from tailrace.demo.control import READ_AT_A_TURN
from tailrace.demo.crew import Crew
from tailrace.demo.load import PRODUCERS, Load, Order
from tailrace.demo.producing import PUSHES_A_NOTE, RECEIPTS, TOPIC
from tailrace.demo.progress import Progress
from tailrace.demo.report import table
from tailrace.errors import IncompatibleHub

COUNTS: Final = (4, 12, 8)
"""How many partitions the topic has, one after the other."""

MARK: Final = "hub.demo"
"""This file in a directory says that the next demo may delete all of it."""

_VICTIM: Final = 2
_LOOK_S: Final = 0.02


class _Event(NamedTuple):
    """Something that happens when so much of the load is stored; `make` does it and tells of it."""

    after: float
    make: Callable[[], str]


def play(directory: Path, orders: int) -> int:
    """See `tailrace.demo.run`."""
    load = Load(orders)
    started = time.monotonic()
    _make_room(directory)
    print(
        f"{load.orders:,} orders of {load.customers:,} customers, pushed by {PRODUCERS} processes "
        f"into {directory}; each is on the disk before its receipt is given",
        file=sys.stderr,
    )
    _push_all(directory, load)
    rows = audited(directory, load, COUNTS)
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
    (directory / RECEIPTS).mkdir(parents=True)
    (directory / MARK).write_text("The next `tailrace demo` deletes this directory.\n")


def _push_all(directory: Path, load: Load) -> None:
    """Let the crew push everything, and let things happen meanwhile."""
    progress = Progress(sys.stderr, "pushing", load.orders)
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        topic = hub.create_topic(TOPIC, Order, partitions=COUNTS[0])
        with Crew(directory, load) as crew:
            events = deque(
                (
                    _Event(0.25, lambda: _scaled(topic, COUNTS[1])),
                    _Event(0.40, lambda: _replaced(crew)),
                    _Event(0.60, lambda: _scaled(topic, COUNTS[2])),
                )
            )
            while crew.at_work():
                stored = sum(sum(storage.ends) for storage in topic.storage_topics)
                if events and stored >= events[0].after * load.orders:
                    progress.say(events.popleft().make())
                progress.show(stored)
                time.sleep(_LOOK_S)
    progress.end()


def _scaled(topic: tailrace.Topic[Order], partitions: int) -> str:
    return f"  scaled:  {topic.scale(partitions).lines[0]}"


def _replaced(crew: Crew) -> str:
    crew.replace(_VICTIM)
    return f"  kill -9: producer {_VICTIM}, and another started under its name"


def _closing(directory: Path, elapsed_s: float) -> str:
    return f"""\
Without Tailrace, reckoned from this run: the killed producer has no name, notes its receipts every
{PUSHES_A_NOTE:,} orders, goes on behind the last note and stores again what was stored since; had
it noted each order, few or none. The same orders lie by hash % partitions and are read from the
start, all partitions side by side, {READ_AT_A_TURN} records a turn; a reader that keeps up would
fare better.

{elapsed_s:.0f} s. The hub is still there:
  tailrace --hub {directory} status
  tailrace --hub {directory} topic show {TOPIC}
  tailrace --hub {directory} tail {TOPIC} --exit -f '%p %v' | grep c0001"""
