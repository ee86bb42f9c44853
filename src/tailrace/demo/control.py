"""The control: the same orders without lineage.

The control places each order by ``hash % partitions``, with the number of partitions that the topic
had when the order was pushed. Partition p is the same log at every count, in favour of the control.
The logs are then read from the start in turn, a number of records from each, as a new consumer
reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tailrace.testing.auditor import Auditor
from tailrace.topic.router import hash_key

READ_AT_A_TURN: Final = 500
"""Number of records read from each log in turn: the default poll size of Kafka's consumers."""


class PushedOrder(NamedTuple):
    """An order when it was pushed: the time, and the number of partitions of the topic."""

    timestamp_ms: int
    partitions: int
    customer: str
    number: int


def customers_in_order(pushes: Iterable[PushedOrder]) -> int:
    """Return the number of customers whose orders the control reads in order."""
    auditor = Auditor()
    customers = set()
    for push in _read(_logs(pushes)):
        customers.add(push.customer)
        auditor.saw(push.customer, push.number, "")
    return len(customers - auditor.audit().disordered)


def _logs(pushes: Iterable[PushedOrder]) -> list[list[PushedOrder]]:
    logs: defaultdict[int, list[PushedOrder]] = defaultdict(list)
    for push in sorted(pushes, key=lambda push: push.timestamp_ms):
        logs[hash_key(push.customer.encode()) % push.partitions].append(push)
    return list(logs.values())


def _read(logs: list[list[PushedOrder]]) -> Iterator[PushedOrder]:
    for start in range(0, max(map(len, logs)), READ_AT_A_TURN):
        for log in logs:
            yield from log[start : start + READ_AT_A_TURN]
