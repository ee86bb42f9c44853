"""The one unit of these tests, and what is done with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tailrace.backend.contract import Backend
from tailrace.group.definition import consumer_name
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

UNIT = "orders/0.0"
WHERE = Partition.parse(UNIT)


def mark(backend: Backend, where: Partition = WHERE) -> int:
    return Progress.load(backend.table, consumer_name("billing"), where).mark


def in_thread(iterate: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=iterate, daemon=True)
    thread.start()
    return thread


def numbers(deliveries: Iterator[Any], count: int) -> list[int]:
    return [next(deliveries).value for _ in range(count)]
