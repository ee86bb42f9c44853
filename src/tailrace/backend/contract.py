"""The contract of a backend: a log, a table, a store, and one transaction with one fence.

All state of Tailrace is in one of three primitives:

* the *log*: append-only records in numbered partitions of storage topics;
* the *table*: the newest value per key, written only inside transactions;
* the *store*: small versioned entries, written under preconditions.

Appends and table writes of one `Transaction` are committed together, under at most one fence,
or not at all. Store entries are committed by a `Change`, which may create, seal or delete
storage topics in the same step.

Callers must not assume more than backends over a network can promise: offsets rise within a
partition but have gaps; partitions of one committed transaction may become visible one after
another; a `commit` that raised `OutcomeUnknown` may have happened.

`tailrace.backend.capabilities` has what only some backends can do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from tailrace.log.record import Encoded, Record
from tailrace.message import Partition, Range

Records: TypeAlias = "tuple[Record, ...] | pa.RecordBatch | Encoded"
"""Records to append: few as a tuple, many as Arrow columns in `tailrace.log.columns.SCHEMA`, or in
the bytes of the record format. Offsets are ignored."""


class Fence(NamedTuple):
    """A name owned at an epoch. A transaction with a fence commits only while the epoch is the
    newest of the name."""

    name: str
    epoch: int


class TableKey(NamedTuple):
    """One key of one table."""

    table: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """Appends and table writes that commit together or not at all.

    `appends` keeps its order: several appends to one partition are stored one after the other.
    `table` maps a key to its new value, or to None to remove it. No key of `absent` may exist;
    otherwise `Conflict` has its value. `since` maps a topic to the store version that the caller
    read it at: partitions created later belong to another topic of that name, and are
    `UnknownTopic`.
    """

    appends: tuple[tuple[Partition, Records], ...] = ()
    table: Mapping[TableKey, bytes | None] = field(default_factory=dict)
    fence: Fence | None = None
    absent: tuple[TableKey, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)


class Entry(NamedTuple):
    """A store entry. `value` is None for a removed entry, which only `watch` returns."""

    key: str
    value: bytes | None
    version: int


class StorageTopic(NamedTuple):
    """A fixed number of partitions of a topic, to be created, sealed or deleted by a `Change`."""

    topic: str
    storage: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Change:
    """Store writes under preconditions, and changes of storage topics, in one commit.

    `expect` maps keys to the version that each must have; 0 means that it must not exist. `writes`
    maps keys to new values, or to None to remove them. `create` creates partitions that accept
    appends; `seal` closes them to appends for ever; `delete` removes them with their records. To
    create an existing storage topic is `Conflict`; to seal or delete a missing one is
    `UnknownTopic`; to seal a sealed one changes nothing.
    """

    expect: Mapping[str, int] = field(default_factory=dict)
    writes: Mapping[str, bytes | None] = field(default_factory=dict)
    create: tuple[StorageTopic, ...] = ()
    seal: tuple[StorageTopic, ...] = ()
    delete: tuple[StorageTopic, ...] = ()


class Bounds(NamedTuple):
    """The offsets of a partition: from `start` up to, not including, `end`. `sealed` never becomes
    False again."""

    start: int
    end: int
    sealed: bool


class OffsetSpan(NamedTuple):
    """Offsets of a partition: from `start` up to, not including, `end`. Empty if they are equal."""

    start: int
    end: int


class TimeBounds(NamedTuple):
    """The least and the greatest timestamp of the records of a partition."""

    least_ms: int
    greatest_ms: int


class Amount(NamedTuple):
    """A number of records and their approximate number of bytes."""

    records: int = 0
    bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum of two amounts."""
        return Amount(self.records + other.records, self.bytes + other.bytes)


class Chunk(NamedTuple):
    """Some records of a partition, in order, and the offset to continue at.

    `next_offset` equal to the requested start means that there are no records yet; above it without
    records, it means a gap.
    """

    records: pa.RecordBatch
    next_offset: int


class Log(Protocol):
    """The log, for reading. `Backend.commit` appends."""

    def bounds(self, partition: Partition) -> Bounds:
        """Return the bounds of a partition; `UnknownTopic` if it does not exist or was deleted."""

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        """Return the bounds of every partition of a storage topic, at one instant if possible."""

    def read(
        self, partition: Partition, start: int, bytes_max: int, end: int | None = None
    ) -> Chunk:
        """Return committed records from `start`, before `end`: about `bytes_max`, at least one.

        Never waits. A start beyond the end is `OutOfRange`; a start in a gap returns the records
        after it. Damaged bytes are `CorruptBatch`; intact batches before the damage are returned
        first.
        """

    def amount(self, partition: Partition, start: int = 0, end: int | None = None) -> Amount:
        """Count the records from `start` up to, not including, `end`; offsets have gaps.

        Offsets outside the bounds of the partition count nothing. Does not read the records if the
        backend can count them without. `CorruptBatch` if the index of a part of the partition is
        damaged.
        """

    def offsets_between(self, partition: Partition, start_ms: int, end_ms: int) -> OffsetSpan:
        """Return offsets that hold every committed record with `start_ms <= timestamp < end_ms`.

        Timestamps do not rise within a partition, because producers set them by their own clocks.
        The span ends at the borders of batches, so it holds records of other times too: callers
        check the timestamp of each record. Empty if no record can match. Goes by the least and the
        greatest timestamp of each batch, and reads no records.

        Damage never makes the span too short: all offsets of a segment whose index is damaged
        count as matching. Reading them is `CorruptBatch`. Records that compaction or retention has
        removed are not found: see `whole_from` and `Bounds.start`.
        """

    def time_bounds(self, partition: Partition) -> TimeBounds | None:
        """Return the least and the greatest timestamp of the committed records; None without
        records.

        Goes by the timestamps of each batch, and reads no records. `CorruptBatch` if the index of a
        part of the partition is damaged.
        """

    def whole_from(self, partition: Partition) -> int:
        """Return the offset below which compaction has dropped records; 0 if it dropped none."""


class Table(Protocol):
    """The tables, for reading. `Backend.commit` writes."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the newest committed value, or None."""

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values from `start` up to, not including, `end`, in byte order, at most
        `limit`, at one instant."""


class Store(Protocol):
    """Small versioned entries. Versions rise over all entries of the store, so they order all
    changes."""

    def get(self, key: str) -> Entry | None:
        """Return the entry, or None if it does not exist."""

    def scan(self, prefix: str) -> list[Entry]:
        """Return all entries whose key begins with `prefix`, in key order, at one instant."""

    def commit(self, change: Change) -> int:
        """Commit the whole change and return the version of every written entry, or raise
        `Conflict` and change nothing."""

    def watch(self, prefix: str, after: int) -> list[Entry]:
        """Return the entries written or removed after version `after`, oldest first, each once with
        its newest state.

        Never waits: see `Backend.follower`. `WatchExpired` if some removals since then are no
        longer stored.
        """


class Follower(Protocol):
    """A waiter for commits. Order of use: `arm`, read, `wait`, and repeat."""

    def arm(self) -> None:
        """Any commit that becomes visible after this call ends the next `wait`."""

    def wait(self, timeout_s: float) -> bool:
        """Return True if there may be a commit since `arm`, False after `timeout_s`."""

    def wake(self) -> None:
        """End the present or next `wait`, as a commit would. May be called from any thread."""

    def close(self) -> None:
        """Release its resources."""


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """A name that one holder has; in a `with` statement, until its end.

    `release` releases the name; it does nothing if the name is released already, or in a forked
    child. `beat` is a sign of life, which `Backend.beats` counts: it commits, syncs and wakes
    nothing. `beat` returns False if the name is no longer held, or in a forked child.
    """

    name: str
    owner: str
    release: Callable[[], None]
    beat: Callable[[], bool]

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Backend(Protocol):
    """The storage of a hub. Every method may be called from any thread and forked child."""

    @property
    def name(self) -> str:
        """The name for people: the directory or the URL."""

    @property
    def log(self) -> Log:
        """The log."""

    @property
    def table(self) -> Table:
        """The table."""

    @property
    def store(self) -> Store:
        """The store."""

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit, and return the range of each append, in the order of `appends`.

        Durable by the hub's sync policy when it returns. Raises, with nothing written:
        `Fenced`, `Sealed`, `Conflict`, `MessageTooLarge`, `UnknownTopic`, `BackendUnavailable`;
        and `OutcomeUnknown`.
        """

    def follower(self) -> Follower:
        """Return a new waiter for commits of this and all other processes."""

    def hold(self, name: str, owner: str) -> Hold:
        """Hold a name exclusively until it is released, this backend is closed or the process dies.

        `Busy`, with the owner text of the holder, if the name is held already, also by this
        process. A forked child holds nothing. A hold shows that its holder is alive, not that it
        may write: only a fence shows that.
        """

    def holder(self, name: str) -> str | None:
        """Return the owner text of the name's holder; None if the name is not held."""

    def beats(self, name: str) -> int | None:
        """Return a number that changes with each beat of the name's holder; None if the name is not
        held."""

    def silent_s(self, name: str) -> float | None:
        """Return the seconds since the name's holder last beat, or began to hold it.

        None if the name is not held.

        For display only: it depends on wall clocks, which may step.
        """

    @property
    def meeting_place(self) -> Path | None:
        """The directory of the sockets by which processes of this host that have the hub open
        connect to each other. It may not exist yet. None if processes cannot connect."""

    def close(self) -> None:
        """Close the backend. Later calls raise `HubClosed`. Closing again does nothing."""


FENCES = "fence/"
"""Store entries under this prefix are fences; the version of the entry is the epoch."""


def raise_fence(store: Store, name: str) -> Fence:
    """Take over a name: from now on every transaction with an older epoch of it is refused."""
    return Fence(name, store.commit(Change(writes={FENCES + name: b""})))
