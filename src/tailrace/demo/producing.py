"""One producer of the demo, in a process of its own that may be killed at any instant.

It pushes under a name, so whoever is started in its place goes on behind the last order that is
stored. What it is told, it writes down every few thousand orders, as programs note how far they
are: customer, number, position, a line each.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import tailrace
from tailrace.demo.load import Load, Order

TOPIC: Final = "orders"
RECEIPTS: Final = "receipts"

PUSHES_A_NOTE: Final = 5_000
"""How rarely receipts are written down. It decides how many a kill takes along, so it is told."""

_BATCH_BYTES: Final = 128 << 10
_SCALING_S_MAX: Final = 60.0
_HOLDS: Final = ((0.60, 1), (0.95, 2))
"""Beyond so much of its orders a producer waits for so many scalings, however fast it is."""


class Noted(NamedTuple):
    """A receipt as a producer wrote it down."""

    customer: str
    number: int
    position: str


def produce(directory: Path, producer: int, orders: int) -> None:
    """Push what is left of a producer's orders."""
    load = Load(orders)
    share = load.share(producer)
    holds = deque((int(part * share), scalings) for part, scalings in _HOLDS)
    notes = directory / RECEIPTS / f"producer-{producer}-{os.getpid()}"
    with (
        tailrace.open(directory, settings=tailrace.HubSettings()) as hub,
        notes.open("w", buffering=1 << 16) as file,
    ):
        topic = hub.topic(TOPIC, Order)
        under_way: deque[tuple[Order, tailrace.Pending]] = deque()
        with topic.producer(name=f"producer-{producer}", batch_bytes=_BATCH_BYTES) as sender:
            stored = sender.last_number
            left = islice(load.orders_of(producer), stored, None)
            for index, order in enumerate(left, stored):
                if holds and index >= holds[0][0]:
                    _wait_for_scaling(topic, holds.popleft()[1])
                under_way.append((order, sender.push(order, key=order.customer)))
                if index % PUSHES_A_NOTE == 0:
                    file.writelines(_lines(under_way))
                    file.flush()
            sender.flush()
            file.writelines(_lines(under_way))


def _lines(under_way: deque[tuple[Order, tailrace.Pending]]) -> Iterator[str]:
    """What is known of the oldest pushes, which are then forgotten."""
    while under_way and under_way[0][1].done():
        order, pending = under_way.popleft()
        yield f"{order.customer} {order.number} {pending.result().id}\n"


def _wait_for_scaling(topic: tailrace.Topic[Any], scalings: int) -> None:
    deadline = time.monotonic() + _SCALING_S_MAX
    while topic.produce_pointer < scalings:
        if time.monotonic() > deadline:
            raise TimeoutError("the topic was not scaled in time")
        time.sleep(0.01)


def noted(directory: Path) -> Iterator[Noted]:
    """Every receipt that any producer wrote down; a line that its death cut short is none."""
    for file in sorted((directory / RECEIPTS).iterdir()):
        for line in file.read_text().split("\n")[:-1]:
            customer, number, position = line.split(" ")
            yield Noted(customer, int(number), position)


if __name__ == "__main__":
    produce(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
