"""One consumer of the demo, in a process of its own that may be killed at any instant.

Whatever it is handed it writes down before it asks for the next, and so before that is
acknowledged: customer, number, position, time of the order, time of this, and whether it was told
that the order may have been handed out before. A line each, straight to the file.
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
from tailrace.demo.load import Order
from tailrace.demo.producing import TOPIC

GROUP: Final = "billing"
SEEN: Final = "seen"


class Seen(NamedTuple):
    """An order as a consumer was handed it. Times of one host's processes can be compared."""

    customer: str
    number: int
    position: tailrace.Position
    timestamp_ms: int
    handed_ns: int
    redelivered: bool


def consume(directory: Path, consumer: int) -> None:
    """Take part in the group until SIGTERM."""
    notes = directory / SEEN / f"consumer-{consumer}-{os.getpid()}"
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        deliveries = hub.topic(TOPIC, Order).tail(group=GROUP, id=f"consumer-{consumer}")
        signal.signal(signal.SIGTERM, lambda *_: deliveries.shutdown())
        with deliveries:
            for delivery in deliveries:
                order = delivery.value
                again = int(delivery.redelivered)
                os.write(
                    file,
                    f"{order.customer} {order.number} {delivery.id} {delivery.timestamp_ms} "
                    f"{time.monotonic_ns()} {again}\n".encode(),
                )
    os.close(file)


def seen(directory: Path) -> list[Seen]:
    """All that consumers wrote down, in the order it was handed out."""
    return sorted(_lines(directory), key=attrgetter("handed_ns"))


def _lines(directory: Path) -> Iterator[Seen]:
    for file in sorted((directory / SEEN).iterdir()):
        for line in file.read_text().split("\n")[:-1]:
            customer, number, position, timestamp_ms, handed_ns, again = line.split(" ")
            yield Seen(
                customer,
                int(number),
                tailrace.Position.parse(position),
                int(timestamp_ms),
                int(handed_ns),
                again == "1",
            )


if __name__ == "__main__":
    consume(Path(sys.argv[1]), int(sys.argv[2]))
