"""The handler of a replay without one: it pushes the messages again to the live queue.

Each copy is stored in the commit that acknowledges the message in the replay, so there is one copy
of each message, whatever ends in between. It has the mark of the replay, by which later replays
pass it over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.delivery.delivery import Delivery, record_of
from tailrace.log.record import Record
from tailrace.log.redelivered import REPLAYED


def copier(queue: str, replay: str, now_ms: Callable[[], int]) -> Callable[..., None]:
    """Return a handler of several messages that pushes them again to the queue."""

    def copy(deliveries: list[Delivery[Any]]) -> None:
        for delivery in deliveries:
            delivery.tx.push_record(queue, copy_of(record_of(delivery), replay, now_ms()))

    return copy


def copy_of(record: Record, replay: str, now_ms: int) -> Record:
    """Return a record to push again: the same key, headers and value, of the present time."""
    headers = {**(record.headers or {}), REPLAYED: replay.encode()}
    return record._replace(offset=0, timestamp=now_ms, headers=headers)
