"""The offsets of a stream that a topic has, and the newest attempt to write them.

Stored in the hub of the topic::

    store   fence/applied/WRITER/STREAM     msgpack, [epoch, number] of the newest attempt
    table   ledger/applied/WRITER           the offsets of each stream, as `Progress` stores them

An attempt stores its own (epoch, number) unless a greater one is stored. That raises the fence, so
from then on the hub refuses every transaction of an older attempt, however long it was paused. Only
then does the attempt read the applied offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Fence,
    Table,
    TableKey,
    Transaction,
)
from tailrace.errors import Busy, Conflict, Fenced, OutcomeUnknown
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets, intersect_ranges
from tailrace.topic.ledger import Progress

ATTEMPTS_MAX: Final = 10
"""Number of retries of a takeover that conflicts with another attempt."""


def applied_logs(table: Table, writer: str) -> frozenset[str]:
    """Return the commit logs whose records this writer has appended, by the hub's table."""
    found = set()
    start = b""
    while page := table.scan(f"ledger/{_consumer(writer)}", start, limit=1):
        log, _, _ = page[0][0].partition(b"/")
        found.add(log.decode())
        start = log + b"0"  # "0" is the byte after "/"
    return frozenset(found)


def _consumer(writer: str) -> str:
    return f"applied/{writer}"


class AttemptNumber(NamedTuple):
    """The order of attempts: the greater number is the newer attempt."""

    epoch: int
    number: int


class AppliedOffsets:
    """The offsets of one stream that one writer has applied, stored in one hub."""

    def __init__(self, backend: Backend, writer: str, stream: str) -> None:
        self._backend = backend
        self._consumer = _consumer(writer)
        self._partition = Partition.parse(stream)
        self._name = f"{self._consumer}/{stream}"
        self._progress = Progress(self._consumer, self._partition)
        self._unsaved = False

    def take_over(self, attempt: AttemptNumber, valid_while: Mapping[str, int]) -> Fence:
        """Fence all older attempts, then load the offsets.

        Raises `Fenced` if a newer attempt has begun, or if an entry of `valid_while` no longer has
        that version in the store.
        """
        fence = self._raise_fence(attempt, valid_while)
        self.load()
        return fence

    def load(self) -> AppliedOffsets:
        """Read the offsets from the hub; return self."""
        self._progress = Progress.load(self._backend.table, self._consumer, self._partition)
        self._unsaved = False
        return self

    def ranges(self) -> list[Offsets]:
        """Return the applied ranges, in order."""
        below = [Offsets(0, self._progress.mark)] if self._progress.mark else []
        return [*below, *(Offsets(*each) for each in self._progress.ranges())]

    def holds(self, offsets: Offsets) -> bool:
        """True if all offsets of a range are applied."""
        holes = self._progress.holes(offsets.end)
        return not any(after > offsets.start for _, after in holes)

    def writes_for(self, added: Sequence[Offsets]) -> Mapping[TableKey, bytes | None]:
        """Return the table writes that add ranges. Call `saved` once they are committed."""
        if self._unsaved:
            self.load()
        self._unsaved = True
        for offsets in added:
            self._progress.ack(*offsets)
        return self._progress.writes()

    def saved(self) -> None:
        """Record that the last result of `writes_for` is committed."""
        self._progress.saved()
        self._unsaved = False

    def forget(self, start: int) -> None:
        """Fence all attempts, and remove `start` and later offsets from the record."""
        fence = self._raise_fence(None, {})
        kept = intersect_ranges(self.load().ranges(), Offsets(0, start))
        self._progress.reset(0)
        self._backend.commit(Transaction(table=self.writes_for(kept), fence=fence))
        self.saved()

    def _raise_fence(self, attempt: AttemptNumber | None, valid_while: Mapping[str, int]) -> Fence:
        """Raise the fence for an attempt; for None, without storing an attempt."""
        key = FENCES + self._name
        for _ in range(ATTEMPTS_MAX):
            entry = self._backend.store.get(key)
            value = entry.value if entry else None
            if attempt is not None:
                newest = msgspec.msgpack.decode(value, type=AttemptNumber) if value else None
                if newest is not None and newest > attempt:
                    # Report the first number that differs: the epoch, else the attempt's number.
                    index = int(newest.epoch == attempt.epoch)
                    raise Fenced(self._name, attempt[index], newest[index])
                value = msgspec.msgpack.encode(attempt)
            expect = {**valid_while, key: entry.version if entry else 0}
            try:
                version = self._backend.store.commit(Change(expect, {key: value or b""}))
            except OutcomeUnknown:
                continue
            except Conflict as conflict:
                if conflict.key in valid_while:
                    name = conflict.key.removeprefix(FENCES)
                    raise Fenced(name, conflict.expected, conflict.version) from None
                continue
            return Fence(self._name, version)
        raise Busy(
            f"the fence of {self._name} changed during {ATTEMPTS_MAX} attempts to raise it",
            "try again later",
        )
