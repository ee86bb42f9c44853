"""The demo from beginning to end."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import tailrace
from tailrace.demo.control import Push, customers_in_order
from tailrace.demo.crew import Crew
from tailrace.demo.load import PRODUCERS, Load, Order
from tailrace.demo.producing import RECEIPTS, TOPIC, noted
from tailrace.demo.progress import Progress
from tailrace.demo.report import Row, table
from tailrace.errors import IncompatibleHub
from tailrace.testing.auditor import Auditor

COUNTS: Final = (4, 12, 8)
"""How many partitions the topic has, one after the other."""

_MARK: Final = "hub.demo"
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
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        topic = hub.create_topic(TOPIC, Order, partitions=COUNTS[0])
        print(
            f"{load.orders:,} orders of {load.customers:,} customers, pushed by {PRODUCERS} "
            f"processes into {directory}; each is on the disk before its receipt",
            file=sys.stderr,
        )
        _push_all(directory, topic, load)
        auditor = Auditor()
        pushes = _read_all(topic, load, auditor)
    rows = _rows(directory, load, auditor, pushes)
    print(f"\n{table(rows)}\n\n{_closing(directory, time.monotonic() - started)}")
    return 0 if all(row.held for row in rows) else 1


def _make_room(directory: Path) -> None:
    """An empty directory with the mark of a demo, in place of what an earlier demo left."""
    if (directory / _MARK).exists():
        shutil.rmtree(directory)
    elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise IncompatibleHub(
            f"{directory} was not made by a demo",
            "it is left as it is",
            "name a directory that is empty or not there yet",
        )
    (directory / RECEIPTS).mkdir(parents=True)
    (directory / _MARK).write_text("The next `tailrace demo` deletes this directory.\n")


def _push_all(directory: Path, topic: tailrace.Topic[Order], load: Load) -> None:
    """Let the crew push everything, with what happens meanwhile."""
    progress = Progress(sys.stderr, "pushing", load.orders)
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


def _read_all(topic: tailrace.Topic[Order], load: Load, auditor: Auditor) -> list[Push]:
    """Read everything in lineage order, under the auditor's eyes."""
    progress = Progress(sys.stderr, "reading", load.orders)
    counts = [storage.partitions for storage in topic.storage_topics]
    reader = topic.reader()
    pushes: list[Push] = []
    while reads := reader.poll():
        for partition, records in reads:
            for message in topic.messages(partition, records):
                order = message.value
                auditor.saw(order.customer, order.number, message.id)
                count = counts[message.storage]
                pushes.append(Push(message.timestamp_ms, count, order.customer, order.number))
            progress.show(min(len(pushes), load.orders))
    progress.end()
    return pushes


def _rows(directory: Path, load: Load, auditor: Auditor, pushes: list[Push]) -> list[Row]:
    for receipt in noted(directory):
        auditor.told(*receipt)
    audit = auditor.audit()
    without_receipt = audit.seen - audit.told + len(audit.lost)
    in_place = audit.told - len(audit.lost | audit.displaced)
    counts = len({push.partitions for push in pushes})
    steps = " → ".join(map(str, COUNTS))
    return [
        Row(f"orders were pushed at all of {steps} partitions", len(COUNTS), counts, None),
        Row("each order with a receipt is where the receipt says", audit.told, in_place, None),
        Row(
            "each order is stored once, over the kill",
            load.orders,
            audit.seen if audit.seen != load.orders else len(pushes),
            load.orders + without_receipt,
        ),
        Row(
            f"each customer's orders are read in order, over {steps}",
            load.customers,
            load.customers - len(audit.disordered),
            customers_in_order(pushes),
        ),
    ]


def _closing(directory: Path, elapsed_s: float) -> str:
    return f"""\
Without Tailrace: a producer that starts again behind its last receipt stores again what was stored
without one; and of the same orders laid out by hash % partitions and read from the start, all
partitions side by side, only so many customers come in order.

{elapsed_s:.0f} s. The hub is still there:
  tailrace --hub {directory} status
  tailrace --hub {directory} topic show {TOPIC}
  tailrace --hub {directory} tail {TOPIC} --exit --to -10"""
