"""What a backend is: a log, a table, a store, and one transaction with one fence.

Everything that Tailrace keeps lives in one of three primitives:

* the *log*: append-only records in numbered partitions of storage topics;
* the *table*: the newest value per key, written only inside transactions;
* the *store*: small versioned entries, written under preconditions.

Appends and table writes of one `Transaction` are committed together, under at most one fence,
or not at all. Store entries are committed by a `Change`, which may create, seal or delete
storage topics in the same step.

What callers may not assume, so that backends over a network fit as well: offsets rise within a
partition but have gaps; partitions of one committed transaction may become visible one after
another; `commit` that raised `OutcomeUnknown` may have happened.
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
    """A name held at an epoch. A transaction that carries it commits only while the epoch is the
    newest."""

    name: str
    epoch: int


class TableKey(NamedTuple):
    """One key of one table."""

    table: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """Appends and table writes that commit together or not at all.

    `appends` keeps its order: several appends to one partition land one after the other.
    `table` maps a key to its new value, or to None to remove it. Every key of `absent` must not
    exist, or `Conflict` carries the value it holds. `since` says from which store version the
    caller knows a topic: partitions created later belong to another topic of that name, and are
    `UnknownTopic`.
    """

    appends: tuple[tuple[Partition, Records], ...] = ()
    table: Mapping[TableKey, bytes | None] = field(default_factory=dict)
    fence: Fence | None = None
    absent: tuple[TableKey, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)


class Entry(NamedTuple):
    """A store entry. `value` is None for one that was removed (only `watch` shows those)."""

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
    """Store writes under preconditions, with what they mean for the log, in one step.

    `expect` maps keys to the version each must still have; 0 means that it must not exist.
    `writes` maps keys to new values, or None to remove. `create` makes partitions that take
    appends; `seal` ends them for ever, in the same commit; `delete` removes them with their
    records. To create what exists is `Conflict`; to seal or delete what does not is
    `UnknownTopic`; to seal what is sealed changes nothing.
    """

    expect: Mapping[str, int] = field(default_factory=dict)
    writes: Mapping[str, bytes | None] = field(default_factory=dict)
    create: tuple[StorageTopic, ...] = ()
    seal: tuple[StorageTopic, ...] = ()
    delete: tuple[StorageTopic, ...] = ()


class Bounds(NamedTuple):
    """What a partition holds: offsets from `start` up to, not including, `end`. A sealed one
    stays so."""

    start: int
    end: int
    sealed: bool


class Chunk(NamedTuple):
    """Some records of a partition, in order, and the offset to go on from.

    `next_offset` equal to the asked-for start means that nothing is there yet; beyond it with
    no records, a gap.
    """

    records: pa.RecordBatch
    next_offset: int


class Log(Protocol):
    """Reading. Appending is `Backend.commit`."""

    def bounds(self, partition: Partition) -> Bounds:
        """What the partition holds now. `UnknownTopic` when it was never created or is deleted."""

    def bounds_of(self, storage: StorageTopic) -> list[Bounds]:
        """`bounds` of every partition of a storage topic, at one instant where the backend can."""

    def read(
        self, partition: Partition, start: int, bytes_max: int, end: int | None = None
    ) -> Chunk:
        """Committed records from `start` on, before `end`: about `bytes_max`, at least one.

        Never waits. A start beyond the end is `OutOfRange`; one in a gap gives what follows.
        Damaged bytes are `CorruptBatch`; whole batches before the damage are still given.
        """


class Table(Protocol):
    """Reading. Writing is `Backend.commit`."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The newest committed value, or None."""

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Keys from `start` up to, not including, `end`, in byte order, at most `limit`, at one
        instant."""


class Store(Protocol):
    """Small versioned entries. Versions rise over all entries of the store, so they order what
    happened."""

    def get(self, key: str) -> Entry | None:
        """The entry, or None when it does not exist."""

    def scan(self, prefix: str) -> list[Entry]:
        """All entries whose key begins with `prefix`, in key order, at one instant."""

    def commit(self, change: Change) -> int:
        """Do all of it and return the version that every written entry now has, or raise
        `Conflict` and do nothing."""

    def watch(self, prefix: str, after: int) -> list[Entry]:
        """Entries written or removed after version `after`, oldest first, newest state each.

        Never waits: see `Backend.follower`. `WatchExpired` when removals since then are no
        longer all remembered.
        """


class Follower(Protocol):
    """Waits for commits. Order of use: `arm`, look at what is there, `wait`, and again."""

    def arm(self) -> None:
        """Any commit that becomes visible after this call ends the next `wait`."""

    def wait(self, timeout_s: float) -> bool:
        """True when something may have been committed since `arm`, False when the time is over."""

    def wake(self) -> None:
        """End the `wait` that a thread is in, or the next one, as a commit would. Any thread."""

    def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """A name that one holder has; in a `with` statement, until its end.

    `release` gives the name up and does nothing when that has happened, or in a forked child.
    `beat` is a sign of life for whoever asks for `Backend.beats`: it commits nothing, syncs nothing
    and wakes nobody, and is False when the name is held no more, or in a forked child.
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
    """A place where a hub lives. Every method may be called from any thread and forked child."""

    @property
    def name(self) -> str:
        """How a person names it: the directory or the URL."""

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
        """Commit, and say where each append landed, in the order of `appends`.

        Durable by the hub's sync policy when it returns. Raises, with nothing written:
        `Fenced`, `Sealed`, `Conflict`, `MessageTooLarge`, `UnknownTopic`, `BackendUnavailable`;
        and `OutcomeUnknown`.
        """

    def follower(self) -> Follower:
        """A new waiter for commits, by this or any other process."""

    def hold(self, name: str, owner: str) -> Hold:
        """Hold a name alone: until it is released, this backend is closed or the process dies.

        `Busy` with the owner's text of the holder when it is held already, also by this process.
        A forked child holds nothing. To be held says that the holder lives, not that it may
        write: a fence says that.
        """

    def holder(self, name: str) -> str | None:
        """The owner's text of whoever holds the name now; None when nobody does."""

    def beats(self, name: str) -> int | None:
        """A number that is another after each beat of whoever holds the name; None when nobody
        does."""

    def silent_s(self, name: str) -> float | None:
        """How long ago whoever holds the name last beat, or took it; None when nobody does.

        For people to see: it goes by wall clocks, which may step.
        """

    @property
    def meeting_place(self) -> Path | None:
        """A directory, which may not be there yet, where processes of this host that have opened
        the hub leave sockets for each other; None where they cannot meet."""

    def close(self) -> None:
        """End all use. Later calls raise `HubClosed`. Closing again does nothing."""


FENCES = "fence/"
"""Store entries under this prefix are fences; the version of the entry is the epoch."""


def raise_fence(store: Store, name: str) -> Fence:
    """Take over a name: every transaction that carries an older epoch of it is refused from now
    on."""
    return Fence(name, store.commit(Change(writes={FENCES + name: b""})))
