"""A complete backend in the memory of one process, for tests.

It keeps every promise of `tailrace.backend.contract` and no more. With `gap_every` it leaves gaps
in the offsets, as a cluster's transaction markers do, so that code which assumes offsets without
gaps fails in a test and not in production. One lock guards everything, so each call sees one
instant. A forked child has a copy of its own.
"""

from __future__ import annotations

import time

from tailrace.backend.contract import Hold, Records, Transaction
from tailrace.errors import Busy, InvalidValue
from tailrace.log.columns import encode
from tailrace.log.record import Encoded
from tailrace.message import Range
from tailrace.testing.memory.gate import Gate, MemoryFollower
from tailrace.testing.memory.log import MemoryLog
from tailrace.testing.memory.store import MemoryStore
from tailrace.testing.memory.table import MemoryTable

__all__ = ["MemoryBackend"]


class MemoryBackend:
    """A `Backend` that ends with its process.

    Every `gap_every`-th append to a partition, the first included, has an unused offset before and
    after it; with 0 there are no gaps.
    """

    def __init__(self, name: str = "memory", *, gap_every: int = 0) -> None:
        self._name = name
        self._gate = Gate(name)
        self.log = MemoryLog(self._gate, gap_every)
        self.table = MemoryTable(self._gate)
        self.store = MemoryStore(self._gate, self.log)
        self._holds: dict[str, Hold] = {}
        self._beats: dict[Hold, tuple[int, float]] = {}

    @property
    def name(self) -> str:
        """The name that the backend was given."""
        return self._name

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit the whole transaction, or raise and write nothing."""
        appends = [(partition, _encoded(records)) for partition, records in transaction.appends]
        with self._gate.entered():
            if transaction.fence is not None:
                self.store.check_fence(transaction.fence)
            for partition, _ in appends:
                self.log.check_open(partition, transaction.since.get(partition.topic))
            self.table.check_absent(transaction.absent)
            ranges = [self.log.append(partition, records) for partition, records in appends]
            self.table.write(transaction.table)
            self._gate.committed()
            return ranges

    def follower(self) -> MemoryFollower:
        """Return a new waiter for commits of this process."""
        with self._gate.entered():
            return MemoryFollower(self._gate)

    def hold(self, name: str, owner: str) -> Hold:
        """Hold a name exclusively; `Busy` if it is held already."""
        if not name or not owner:
            raise InvalidValue("a hold", (name, owner), "a name and an owner")
        with self._gate.entered():
            if (held := self._holds.get(name)) is not None:
                raise Busy(
                    f"{name} is held by {held.owner}",
                    "wait until it is released, or stop that process",
                )
            hold = Hold(name, owner, lambda: self._release(hold), lambda: self._beat(hold))
            self._holds[name] = hold
            self._beats[hold] = 0, time.monotonic()
            return hold

    def holder(self, name: str) -> str | None:
        """Return the owner text of the name's holder; None if the name is not held."""
        with self._gate.entered():
            held = self._holds.get(name)
            return None if held is None else held.owner

    def beats(self, name: str) -> int | None:
        """Return a number that each beat changes; None if the name is not held."""
        with self._gate.entered():
            held = self._holds.get(name)
            return None if held is None else self._beats[held][0]

    def silent_s(self, name: str) -> float | None:
        """Return the seconds since the holder last beat; None if the name is not held."""
        with self._gate.entered():
            held = self._holds.get(name)
            return None if held is None else time.monotonic() - self._beats[held][1]

    @property
    def meeting_place(self) -> None:
        """None: the backend has only one process."""
        return None

    def close(self) -> None:
        """Close the backend; threads that wait get `HubClosed`."""
        self._gate.close()
        self._holds.clear()
        self._beats.clear()

    def _release(self, hold: Hold) -> None:
        if self._holds.get(hold.name) is hold:
            del self._holds[hold.name], self._beats[hold]

    def _beat(self, hold: Hold) -> bool:
        before = self._beats.get(hold)
        if before is not None:
            self._beats[hold] = before[0] + 1, time.monotonic()
        return before is not None


def _encoded(records: Records) -> Encoded:
    """Encode records as a log stores them; raises the same errors."""
    encoded = encode(records)
    if not encoded.count:
        raise InvalidValue("append", "no records", "one record or more")
    return encoded
