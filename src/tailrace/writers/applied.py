"""Which offsets of a stream a hub's topic has, and whose turn it is to add to it.

Kept in the hub of the topic::

    store   fence/applied/WRITER/STREAM     msgpack, [epoch, number] of the newest attempt
    table   ledger/applied/WRITER           the offsets of each stream, as `Progress` stores them

An attempt sets its own (epoch, number) unless a greater one is there. That raises the fence, so
every transaction of an older attempt is refused from then on, however long it was paused; only then
is read what is applied.
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
from tailrace.pipeline.offsets import Offsets
from tailrace.topic.ledger import Progress

ATTEMPTS_MAX: Final = 10
"""How often taking over starts again because another attempt came between."""


def applied_logs(table: Table, writer: str) -> frozenset[str]:
    """The commit logs of which a hub says that a topic has records of this writer."""
    found = set()
    start = b""
    while page := table.scan(f"ledger/{_consumer(writer)}", start, limit=1):
        log, _, _ = page[0][0].partition(b"/")
        found.add(log.decode())
        start = log + b"0"  # "0" is the byte after "/"
    return frozenset(found)


def _consumer(writer: str) -> str:
    return f"applied/{writer}"


class Turn(NamedTuple):
    """An attempt by its age: the greater is the newer."""

    epoch: int
    number: int


class Applied:
    """The offsets of one stream that one writer has applied, in one hub."""

    def __init__(self, backend: Backend, writer: str, stream: str) -> None:
        self._backend = backend
        self._consumer = _consumer(writer)
        self._partition = Partition.parse(stream)
        self._name = f"{self._consumer}/{stream}"
        self._progress = Progress(self._consumer, self._partition)
        self._unsaved = False

    def take_over(self, turn: Turn, valid_while: Mapping[str, int]) -> Fence:
        """Shut out all older attempts, then load.

        `Fenced` when a newer one has begun, or when a store entry of `valid_while` no longer has
        that version.
        """
        fence = self._raise(turn, valid_while)
        self.load()
        return fence

    def load(self) -> Applied:
        """Read it from the hub."""
        self._progress = Progress.load(self._backend.table, self._consumer, self._partition)
        self._unsaved = False
        return self

    def ranges(self) -> list[Offsets]:
        """What is applied, in order."""
        below = [Offsets(0, self._progress.mark)] if self._progress.mark else []
        return [*below, *(Offsets(*each) for each in self._progress.ranges())]

    def holds(self, offsets: Offsets) -> bool:
        """Whether all of a range is applied."""
        holes = self._progress.holes(offsets.end)
        return not any(after > offsets.start for _, after in holes)

    def adding(self, taken: Sequence[Offsets]) -> Mapping[TableKey, bytes | None]:
        """The table writes by which these ranges are applied too. They count only once `saved`."""
        if self._unsaved:
            self.load()
        self._unsaved = True
        for offsets in taken:
            self._progress.ack(*offsets)
        return self._progress.writes()

    def saved(self) -> None:
        """What `adding` gave last is committed."""
        self._progress.saved()
        self._unsaved = False

    def forget(self, start: int) -> None:
        """Shut out all attempts, and say no longer that `start` and beyond is applied."""
        fence = self._raise(None, {})
        held = self.load().ranges()
        self._progress.reset(0)
        kept = [Offsets(first, min(after, start)) for first, after in held if first < start]
        self._backend.commit(Transaction(table=self.adding(kept), fence=fence))
        self.saved()

    def _raise(self, turn: Turn | None, valid_while: Mapping[str, int]) -> Fence:
        """Raise the fence for an attempt, or for nobody."""
        key = FENCES + self._name
        for _ in range(ATTEMPTS_MAX):
            entry = self._backend.store.get(key)
            value = entry.value if entry else None
            if turn is not None:
                if value and (newest := msgspec.msgpack.decode(value, type=Turn)) > turn:
                    which = newest.epoch == turn.epoch  # the first number in which they differ
                    raise Fenced(self._name, turn[which], newest[which])
                value = msgspec.msgpack.encode(turn)
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
        raise Busy(f"{self._name} was taken over {ATTEMPTS_MAX} times meanwhile", "try again later")
