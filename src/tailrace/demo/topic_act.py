"""The first act: a topic is re-scaled under load and a producer is killed, then all is read."""

from __future__ import annotations

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
from tailrace.demo.report import Row

COUNTS: Final = (4, 12, 8)
"""How many partitions the topic has, one after the other."""

WITHOUT: Final = f"""\
Orders: the killed producer has no name, notes its receipts every {PUSHES_A_NOTE:,} orders, goes on
behind the last note and stores again what was stored since; had it noted each order, few or none.
The same orders lie by hash % partitions and are read from the start, all partitions side by side,
{READ_AT_A_TURN} records a turn; a reader that keeps up would fare better."""
"""How the last column of its rows comes about."""

_VICTIM: Final = 2
_LOOK_S: Final = 0.02


class _Event(NamedTuple):
    """Something that happens when so much of the load is stored; `make` does it and tells of it."""

    after: float
    make: Callable[[], str]


def play_topic(directory: Path, load: Load) -> list[Row]:
    """Play it in the hub of a directory; the rows of the closing table."""
    (directory / RECEIPTS).mkdir()
    print(
        f"{load.orders:,} orders of {load.customers:,} customers, pushed by {PRODUCERS} processes "
        f"into {directory}; each is on the disk before its receipt is given",
        file=sys.stderr,
    )
    _push_all(directory, load)
    return audited(directory, load, COUNTS)


def commands(directory: Path) -> list[str]:
    """What to look at afterwards."""
    return [
        f"tailrace --hub {directory} topic show {TOPIC}",
        f"tailrace --hub {directory} tail {TOPIC} --exit -f '%p %v' | grep c0001",
    ]


def _push_all(directory: Path, load: Load) -> None:
    """Let the crew push everything, and let things happen meanwhile."""
    progress = Progress(sys.stderr, "pushing", load.orders, "orders")
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
