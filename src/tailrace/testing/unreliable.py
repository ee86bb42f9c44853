"""A backend as one process of a simulation sees it: calls fail, or have unknown outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tailrace.backend.contract import (
    Amount,
    Backend,
    Bounds,
    Change,
    Chunk,
    Entry,
    Follower,
    Hold,
    OffsetSpan,
    StorageTopic,
    TimeBounds,
    Transaction,
)
from tailrace.errors import BackendUnavailable, OutcomeUnknown
from tailrace.message import Partition, Range
from tailrace.testing.arguments import check_part, check_seconds, check_span

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreQuality:
    """How a store treats calls.

    The part `failure` of all calls does nothing and raises `BackendUnavailable`. The part `unknown`
    of all commits raises `OutcomeUnknown`, half of them after the commit was done. Each piece of
    work of a process with the store takes from `delay_s[0]` to `delay_s[1]`; the part `stalling`
    takes up to `stalling_s`.
    """

    failure: float = 0.0
    unknown: float = 0.0
    delay_s: tuple[float, float] = (0.000_2, 0.002)
    stalling: float = 0.0
    stalling_s: float = 4.0

    def __post_init__(self) -> None:
        for what in ("failure", "unknown", "stalling"):
            check_part(what, getattr(self, what))
        check_span("delay_s", self.delay_s)
        check_seconds("stalling_s", self.stalling_s)


class UnreliableBackend:
    """A `Backend` that passes each call on to another, except when the call fails.

    `before_commit` is called before every commit. It can change the backend between the caller's
    last read and its commit.
    """

    def __init__(
        self, backend: Backend, random: Random, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        self.quality = StoreQuality()
        self.down = False
        """True if every call fails."""
        self.commits_to_fail = 0
        """The number of next commits that fail; every second one of them is done all the same."""
        self._backend = backend
        self._random = random
        self._before_commit = before_commit
        self.log = _UnreliableLog(self)
        self.table = _UnreliableTable(self)
        self.store = _UnreliableStore(self)

    @property
    def name(self) -> str:
        """The name of the backend."""
        return self._backend.name

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit, or raise the backend's error, or fail."""
        return self._committed(lambda: self._backend.commit(transaction))

    def follower(self) -> Follower:
        """Return a new follower of commits, which does not fail."""
        return self._backend.follower()

    def hold(self, name: str, owner: str) -> Hold:
        """Hold a name exclusively. Does not fail: the operating system does it."""
        return self._backend.hold(name, owner)

    def holder(self, name: str) -> str | None:
        """Return the holder of a name."""
        return self.read(lambda: self._backend.holder(name))

    def beats(self, name: str) -> int | None:
        """Return the number of heartbeats of the holder of a name."""
        return self.read(lambda: self._backend.beats(name))

    def silent_s(self, name: str) -> float | None:
        """Return the seconds since the last heartbeat of the holder of a name."""
        return self.read(lambda: self._backend.silent_s(name))

    @property
    def meeting_place(self) -> None:
        """None: the processes of a simulation use its network."""
        return None

    def close(self) -> None:
        """Do nothing: other processes use the backend too."""

    def read(self, call: Callable[[], T]) -> T:
        """Make a call that changes nothing, or fail."""
        if self.down or (self.quality.failure and self._random.random() < self.quality.failure):
            raise BackendUnavailable("the store does not answer", "try again")
        return call()

    def committed(self, change: Change) -> int:
        """Commit a change of the store, or fail."""
        return self._committed(lambda: self._backend.store.commit(change))

    @property
    def behind(self) -> Backend:
        """The backend that never fails."""
        return self._backend

    def _committed(self, call: Callable[[], T]) -> T:
        self._before_commit()
        if self.commits_to_fail:
            self.commits_to_fail -= 1
            if self.commits_to_fail % 2:
                call()
            raise OutcomeUnknown("the store does not answer", "read again")
        if self.quality.unknown and self._random.random() < self.quality.unknown:
            if self._random.random() < 0.5:
                call()
            raise OutcomeUnknown("the answer of the store was lost", "read again")
        return self.read(call)


class _UnreliableLog:
    def __init__(self, backend: UnreliableBackend) -> None:
        self._backend = backend

    def bounds(self, partition: Partition) -> Bounds:
        return self._backend.read(lambda: self._backend.behind.log.bounds(partition))

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        return self._backend.read(lambda: self._backend.behind.log.bounds_of(storage))

    def read(
        self, partition: Partition, start: int, bytes_max: int, end: int | None = None
    ) -> Chunk:
        log = self._backend.behind.log
        return self._backend.read(lambda: log.read(partition, start, bytes_max, end))

    def amount(self, partition: Partition, start: int = 0, end: int | None = None) -> Amount:
        return self._backend.read(lambda: self._backend.behind.log.amount(partition, start, end))

    def offsets_between(self, partition: Partition, start_ms: int, end_ms: int) -> OffsetSpan:
        log = self._backend.behind.log
        return self._backend.read(lambda: log.offsets_between(partition, start_ms, end_ms))

    def time_bounds(self, partition: Partition) -> TimeBounds | None:
        return self._backend.read(lambda: self._backend.behind.log.time_bounds(partition))

    def whole_from(self, partition: Partition) -> int:
        return self._backend.read(lambda: self._backend.behind.log.whole_from(partition))


class _UnreliableTable:
    def __init__(self, backend: UnreliableBackend) -> None:
        self._backend = backend

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._backend.read(lambda: self._backend.behind.table.get(table, key))

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        behind = self._backend.behind.table
        return self._backend.read(lambda: behind.scan(table, start, end, limit))


class _UnreliableStore:
    def __init__(self, backend: UnreliableBackend) -> None:
        self._backend = backend

    def get(self, key: str) -> Entry | None:
        return self._backend.read(lambda: self._backend.behind.store.get(key))

    def scan(self, prefix: str) -> list[Entry]:
        return self._backend.read(lambda: self._backend.behind.store.scan(prefix))

    def commit(self, change: Change) -> int:
        return self._backend.committed(change)

    def watch(self, prefix: str, after: int) -> list[Entry]:
        return self._backend.read(lambda: self._backend.behind.store.watch(prefix, after))
