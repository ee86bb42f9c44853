"""One consumer of the demo, in its own process, which may be killed at any instant.

The consumer writes each order to a file before it asks for the next one, and so before the order is
acknowledged. A line has the customer, number, position, time of the push, time of the delivery,
and 1 if the delivery is marked as redelivered. Each line goes straight to the file.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import tailrace
from tailrace.demo.producer import TOPIC
from tailrace.demo.workload import Order

GROUP: Final = "billing"
RECEIVED: Final = "received"


class ReceivedOrder(NamedTuple):
    """An order that a consumer received. Delivery times are comparable on one host."""

    customer: str
    number: int
    position: tailrace.Position
    timestamp_ms: int
    delivered_ns: int
    redelivered: bool


def consume(directory: Path, number: int) -> None:
    """Consume as a member of the group until SIGTERM."""
    path = directory / RECEIVED / f"consumer-{number}-{os.getpid()}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        consumer = hub.topic(TOPIC, Order).tail(group=GROUP, id=f"consumer-{number}")
        signal.signal(signal.SIGTERM, lambda *_: consumer.shutdown())
        with consumer:
            for delivery in consumer:
                order = delivery.value
                again = int(delivery.redelivered)
                os.write(
                    file,
                    f"{order.customer} {order.number} {delivery.id} {delivery.timestamp_ms} "
                    f"{time.monotonic_ns()} {again}\n".encode(),
                )
    os.close(file)


def received(directory: Path) -> list[ReceivedOrder]:
    """Return every order that a consumer received, in the order of delivery."""
    return sorted(_lines(directory), key=attrgetter("delivered_ns"))


def _lines(directory: Path) -> Iterator[ReceivedOrder]:
    for file in sorted((directory / RECEIVED).iterdir()):
        for line in file.read_text().split("\n")[:-1]:
            customer, number, position, timestamp_ms, delivered_ns, again = line.split(" ")
            yield ReceivedOrder(
                customer,
                int(number),
                tailrace.Position.parse(position),
                int(timestamp_ms),
                int(delivered_ns),
                again == "1",
            )


if __name__ == "__main__":
    consume(Path(sys.argv[1]), int(sys.argv[2]))
