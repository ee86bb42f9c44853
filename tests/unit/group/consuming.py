"""What tests of consumers do again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.group.definition import consumer_name
from tailrace.group.deliveries import Deliveries
from tailrace.group.delivery import Delivery
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.topic import Topic


def push(topic: Topic[Any], count: int, keys: int = 5, first: int = 0) -> None:
    topic.push_many([(f"k{n % keys}", n) for n in range(first, first + count)])


def for_each(deliveries: Deliveries[Any], handler: Callable[[Delivery[Any]], None]) -> None:
    for delivery in deliveries:
        handler(delivery)


def left(topic: Topic[Any]) -> list[Any]:
    """The values that the ledger does not hold."""
    found = []
    for number in range(topic.view.definition.shape.partitions):
        where = Partition(topic.name, 0, number)
        progress = Progress.load(topic.view.backend.table, consumer_name("billing"), where)
        for batch in topic.batches(0, number):
            messages = topic.messages(where, batch)
            found += [m.value for m in messages if not progress.acked(m.offset)]
    return sorted(found)
