"""The control: the same orders without lineage.

They are laid out by ``hash % partitions``, with the number of partitions that the topic had when
each was pushed. Partition p is one log at every number, which spares the control some disorder. The
logs are then read from the start, side by side, some records of each in turn, as a consumer does
that comes late or starts over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tailrace.testing.auditor import Auditor
from tailrace.topic.router import hash_key

READ_AT_A_TURN: Final = 500
"""How many records of each log are read in turn: what Kafka's consumers take by default."""


class Push(NamedTuple):
    """An order as it was pushed: when, and how many partitions the topic had then."""

    timestamp_ms: int
    partitions: int
    customer: str
    number: int


def customers_in_order(pushes: Iterable[Push]) -> int:
    """How many customers the control reads in order."""
    auditor = Auditor()
    customers = set()
    for push in _read(_laid_out(pushes)):
        customers.add(push.customer)
        auditor.saw(push.customer, push.number, "")
    return len(customers - auditor.audit().disordered)


def _laid_out(pushes: Iterable[Push]) -> list[list[Push]]:
    logs: defaultdict[int, list[Push]] = defaultdict(list)
    for push in sorted(pushes, key=lambda push: push.timestamp_ms):
        logs[hash_key(push.customer.encode()) % push.partitions].append(push)
    return list(logs.values())


def _read(logs: list[list[Push]]) -> Iterator[Push]:
    for start in range(0, max(map(len, logs)), READ_AT_A_TURN):
        for log in logs:
            yield from log[start : start + READ_AT_A_TURN]
