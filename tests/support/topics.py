"""Messages to push to a topic, and what the topic holds."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.backend.contract import Transaction
from tailrace.hub.topic import Topic
from tailrace.log.redelivered import FOR, ORIGIN
from tailrace.message import Message


class Order(msgspec.Struct):
    """A value with a type."""

    id: int
    customer: str = "c"


def push(topic: Topic[Any], count: int, keys: int = 5, first: int = 0) -> None:
    """Push the numbers from `first` on, with the keys k0, k1, … in turn."""
    topic.push_many([(f"k{n % keys}", n) for n in range(first, first + count)])


def push_for(topic: Topic[Any], consumer: str, value: bytes, key: str = "k") -> None:
    """Append a record that only one consumer may process, as a redelivery does."""
    record = topic.builder.record(value, key, None, None)
    record = record._replace(headers={FOR: consumer.encode(), ORIGIN: b"orders/0.0@0"})
    where = topic.view.target.partition_of(record.key)
    topic.view.backend.commit(Transaction(((where, (record,)),)))


def all_messages(topic: Topic[Any], *, control: bool = False) -> list[Message[Any]]:
    """Return every message of a topic, in lineage order; with `control`, control records too."""
    reader = topic.reader(control=control)
    found: list[Message[Any]] = []
    while reads := reader.poll():
        for partition, records in reads:
            found += topic.messages(partition, records)
    return found


def all_values(topic: Topic[Any]) -> list[Any]:
    """Return every value of a topic, in lineage order."""
    return [message.value for message in all_messages(topic)]


def end_offsets(topic: Topic[Any]) -> dict[str, int]:
    """Return the end offset of each partition, as `orders/0.1`."""
    return {
        f"{topic.name}/{info.index}.{number}": end
        for info in topic.storage_topics
        for number, end in enumerate(info.ends)
    }


def nothing_stored(topic: Topic[Any]) -> bool:
    """True if no partition has a record."""
    return not any(end_offsets(topic).values())
