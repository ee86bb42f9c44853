"""Feeding: what shards of the present generation still have in older storage topics of RQ and DLQ.

In such a storage topic a partition may have keys of several shards. It is sealed. Each of those
shards, as its *feeder*, has a ledger of its own for it, in which the messages of other shards are
acknowledged from the beginning. So a message is done when the ledgers of all feeders hold it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tailrace.message import Partition
from tailrace.topic.ledger import Progress


def held_by_all(ledgers: Iterable[Progress], end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets below `end` that every ledger has acknowledged, in order."""
    holes = sorted(hole for ledger in ledgers for hole in ledger.holes(end))
    at = 0
    for first, after in holes:
        if first > at:
            yield at, first
        at = max(at, after)
    if at < end:
        yield at, end


def merged(base: Progress, feeders: Sequence[Progress], end: int) -> Progress:
    """Return what is done of a partition that has feeders. `base` is what was done before they
    began."""
    found = base.copy()
    if feeders:
        for first, after in held_by_all(feeders, end):
            found.ack(first, after)
    return found


def feeder_ledger(
    consumer: str, partition: Partition, unit: str, own: Iterable[int], end: int
) -> Progress:
    """Return the first ledger of a feeder: all is acknowledged below `end` but its own messages,
    whose offsets are given in order."""
    ledger = Progress(consumer, partition, unit=unit)
    at = 0
    for offset in own:
        ledger.ack(at, offset)
        at = offset + 1
    ledger.ack(at, end)
    return ledger
