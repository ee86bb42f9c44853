"""The store entry of the last offset reset of a subscription."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from tailrace.backend.contract import Store
from tailrace.message import Partition
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.names import RESETS


class ResetState(StrEnum):
    """The state of a reset."""

    PENDING = "pending"
    DONE = "done"


class ResetEntry(msgspec.Struct, frozen=True):
    """The last reset of a subscription.

    `number` counts the resets of all three queues. `queue` is the one that is moved, in lower case,
    and `target` where to, as the operator gave it. `marks` are the new low-water marks of
    partitions, ``orders/1.7``, which a reset that is done has in the ledger alone. `before` is the
    number of the last reset of the topic until this one, and `storages` the number of storage
    topics up to the one that took pushes then: later ones have the new number from the start.
    `who`, `pid`, `command`, `reason` and `time_ms` are those of the operator.
    """

    state: ResetState
    number: int
    queue: str
    target: str
    marks: dict[str, int]
    before: int
    storages: int
    who: str
    pid: int
    command: str
    reason: str
    time_ms: int

    @property
    def of(self) -> Queue:
        """The queue that is moved."""
        return Queue[self.queue.upper()]

    @property
    def partitions(self) -> dict[Partition, int]:
        """The new marks, by partition."""
        return {Partition.parse(name): mark for name, mark in self.marks.items()}


_decode = msgspec.json.Decoder(ResetEntry).decode


class StoredReset(NamedTuple):
    """The last reset, and the version of its entry."""

    reset: ResetEntry
    version: int

    @property
    def pending(self) -> bool:
        """True if it is not finished."""
        return self.reset.state is ResetState.PENDING


def is_pending(store: Store, subscription: str) -> bool:
    """True if a reset of a subscription is not finished."""
    found = find_reset(store, subscription)
    return found is not None and found.pending


def find_reset(store: Store, subscription: str) -> StoredReset | None:
    """Return the last reset of a subscription; None if there was none."""
    entry = store.get(RESETS + subscription)
    if entry is None or entry.value is None:
        return None
    return StoredReset(_decode(entry.value), entry.version)
