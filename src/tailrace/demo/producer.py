"""One producer of the demo, in its own process, which may be killed at any instant.

The producer pushes under a name, so the process that replaces it continues after the last stored
order. Every few thousand orders it saves its receipts to a file: customer, number, position, one
line each.
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
from tailrace.demo.workload import Order, Workload

TOPIC: Final = "orders"
RECEIPTS: Final = "receipts"

SAVE_EVERY: Final = 5_000
"""Number of orders between two saves. A kill loses the receipts since the last save."""

_BATCH_BYTES: Final = 128 << 10
_SCALING_S_MAX: Final = 60.0
_WAITS: Final = ((0.60, 1), (0.95, 2))
"""Pairs of a part and a number: after that part of its orders, a producer waits until the topic was
scaled that number of times."""


class SavedReceipt(NamedTuple):
    """A receipt that a producer saved."""

    customer: str
    number: int
    position: str


def produce(directory: Path, producer: int, orders: int) -> None:
    """Push the orders of a producer that are not stored yet."""
    workload = Workload(orders)
    count = workload.count(producer)
    waits = deque((int(part * count), scalings) for part, scalings in _WAITS)
    path = directory / RECEIPTS / f"producer-{producer}-{os.getpid()}"
    with (
        tailrace.open(directory, settings=tailrace.HubSettings()) as hub,
        path.open("w", buffering=1 << 16) as file,
    ):
        topic = hub.topic(TOPIC, Order)
        pending: deque[tuple[Order, tailrace.Pending]] = deque()
        with topic.producer(name=f"producer-{producer}", batch_bytes=_BATCH_BYTES) as sender:
            stored = sender.last_number
            left = islice(workload.orders_of(producer), stored, None)
            for index, order in enumerate(left, stored):
                if waits and index >= waits[0][0]:
                    _wait_for_scaling(topic, waits.popleft()[1])
                pending.append((order, sender.push(order, key=order.customer)))
                if index % SAVE_EVERY == 0:
                    file.writelines(_receipt_lines(pending))
                    file.flush()
            sender.flush()
            file.writelines(_receipt_lines(pending))


def _receipt_lines(pending: deque[tuple[Order, tailrace.Pending]]) -> Iterator[str]:
    """Pop the oldest pushes that are stored, and yield a line for each."""
    while pending and pending[0][1].done():
        order, push = pending.popleft()
        yield f"{order.customer} {order.number} {push.result().id}\n"


def _wait_for_scaling(topic: tailrace.Topic[Any], scalings: int) -> None:
    deadline = time.monotonic() + _SCALING_S_MAX
    while topic.produce_pointer < scalings:
        if time.monotonic() > deadline:
            raise TimeoutError("the topic was not scaled in time")
        time.sleep(0.01)


def saved_receipts(directory: Path) -> Iterator[SavedReceipt]:
    """Yield every receipt that a producer saved. A line that a kill cut short is ignored."""
    for file in sorted((directory / RECEIPTS).iterdir()):
        for line in file.read_text().split("\n")[:-1]:
            customer, number, position = line.split(" ")
            yield SavedReceipt(customer, int(number), position)


if __name__ == "__main__":
    produce(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
