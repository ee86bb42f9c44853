"""What the hub keeps of a writer: its ledger, its open plan, its state, all under one fence.

    ledger/lake/crm              its progress in each partition of the commit log
    ledger/lake/crm/skipped      of that, what no sink was given: parked, or acknowledged by an
                                 operator, or before its start
    writers/lake      crm/plan   the open plan
                      crm/state  what it is doing, for people
                      crm/rewind where an operator wants it to begin again
    fence/writer/lake/crm        raised by whoever drives it, and by operators

Whoever raised the fence last may write. A driver that finds itself fenced was overtaken by an
operator: it raises the fence again and reads everything anew, once the operator is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Fence,
    Records,
    TableKey,
    Transaction,
    raise_fence,
)
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.pipeline.plan import Plan, acknowledged
from tailrace.pipeline.writer import Offsets
from tailrace.topic.ledger import Progress
from tailrace.topic.view import View

S = TypeVar("S", bound=msgspec.Struct)

Appends: TypeAlias = "tuple[tuple[Partition, Records], ...]"

_PLAN: Final = "plan"
_STATE: Final = "state"
_REWIND: Final = "rewind"


class State(StrEnum):
    """What a writer is doing."""

    RUNNING = "running"
    RESUMING = "resuming one at a time"
    FAILED = "failed"
    STOPPED = "stopped"


class WriterState(msgspec.Struct, frozen=True):
    """What the hub says of a writer. `rows` were delivered since it was first started."""

    state: State = State.STOPPED
    rows: int = 0
    parked: int = 0
    since_ms: int = 0
    error: str | None = None
    position: str | None = None


class Rewind(msgspec.Struct, frozen=True):
    """Where an operator wants a writer to begin again, to be made known to its sink."""

    offsets: dict[str, int]


class WriterName(msgspec.Struct, frozen=True):
    """A writer of a pipeline, written ``lake/crm``."""

    pipeline: str
    writer: str

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.writer}"

    @classmethod
    def parse(cls, text: str) -> WriterName:
        """Read ``lake/crm``; anything else is an `InvalidValue` that shows the form."""
        pipeline, slash, writer = text.partition("/")
        if not (pipeline and slash and writer) or "/" in writer:
            raise InvalidValue("writer", text, "PIPELINE/WRITER, for example lake/crm")
        return cls(pipeline, writer)

    @property
    def fence(self) -> str:
        """The name of its fence."""
        return f"writer/{self}"

    @property
    def operator(self) -> str:
        """What an operator holds who is at its books."""
        return f"operator/{self}"

    @property
    def skipped(self) -> str:
        """The consumer that holds what no sink was given."""
        return f"{self}/skipped"

    def key(self, what: str) -> TableKey:
        """One of its entries beside the ledger."""
        return TableKey(f"writers/{self.pipeline}", f"{self.writer}/{what}".encode())


class Standing(NamedTuple):
    """How far a writer is in one partition: its low-water mark, and how many offsets above it are
    acknowledged."""

    mark: int
    above: int


class Books:
    """A writer's books, opened by raising its fence. For one thread at a time.

    `progress` and `skipped` have an entry for each partition of the commit log; `find_partitions`
    adds those of storage topics that came later. `standings`, as last stored or read, and `state`
    are replaced as a whole and may be looked at from any thread.
    """

    def __init__(self, backend: Backend, name: WriterName, view: View) -> None:
        self.backend = backend
        self.name = name
        self.view = view
        self.progress: dict[Partition, Progress] = {}
        self.skipped: dict[Partition, Progress] = {}
        self.fence = Fence(name.fence, 0)
        self.plan: Plan | None = None
        self.state = WriterState()
        self.rewind: Rewind | None = None
        self.standings: dict[Partition, Standing] = {}

    def take(self) -> None:
        """Raise the fence, then read everything as it is now."""
        self.fence = raise_fence(self.backend.store, self.name.fence)
        self.read()

    def read(self) -> None:
        """Read everything as it is now, without taking it."""
        self.progress.clear()
        self.skipped.clear()
        self.standings = {}
        self.plan = self._get(_PLAN, Plan)
        self.state = self._get(_STATE, WriterState) or WriterState()
        self.rewind = self._get(_REWIND, Rewind)
        self.find_partitions()

    def find_partitions(self) -> None:
        """Open the ledger of partitions that were added to the commit log."""
        definition = self.view.refresh().definition
        table = self.backend.table
        found = [
            Partition(storage.topic, storage.storage, number)
            for storage in definition.storage_topics(self.view.topic)
            for number in range(storage.partitions)
        ]
        for where in found[len(self.progress) :]:
            self.progress[where] = Progress.load(table, str(self.name), where)
            self.skipped[where] = Progress.load(table, self.name.skipped, where)
        if len(found) != len(self.standings):
            self._take_stock()

    def overtaken(self) -> bool:
        """Whether somebody raised the fence since this was taken."""
        entry = self.backend.store.get(FENCES + self.fence.name)
        return entry is None or entry.version != self.fence.epoch

    def skip(self, partition: Partition, offsets: Offsets) -> None:
        """Acknowledge what no sink is given."""
        self.progress[partition].ack(*offsets)
        self.skipped[partition].ack(*offsets)

    def commit(
        self,
        *,
        plan: Plan | None,
        state: WriterState | None = None,
        appends: Appends = (),
        extra: Mapping[TableKey, bytes | None] | None = None,
    ) -> None:
        """Store all progress, and this plan and state, with these records. `Fenced` if overtaken.

        The ledgers of all partitions are one consistent cut.
        """
        entries: dict[TableKey, bytes | None] = dict(extra or {})
        ledgers = [*self.progress.values(), *self.skipped.values()]
        for progress in ledgers:
            entries |= progress.writes()
        if plan != self.plan:
            entries[self.name.key(_PLAN)] = None if plan is None else msgspec.json.encode(plan)
        if state is not None and state != self.state:
            entries[self.name.key(_STATE)] = msgspec.json.encode(state)
        if not entries and not appends:
            return
        self.backend.commit(Transaction(appends, entries, self.fence))
        for progress in ledgers:
            progress.saved()
        self.plan = plan
        self.state = state or self.state
        self._take_stock()

    def rewind_to(self, partition: Partition, offset: int) -> dict[TableKey, bytes | None]:
        """Acknowledge nothing from `offset` on; the entry that `commit` has to store with it, so
        that the sink learns of it at the next `begin`. A rewind that no sink knows of yet is
        replaced."""
        for progress in (self.progress[partition], self.skipped[partition]):
            kept = acknowledged(progress, Offsets(0, offset))
            progress.reset(0)
            for offsets in kept:
                progress.ack(*offsets)
        earlier = {} if self.rewind is None else self.rewind.offsets
        self.rewind = Rewind(earlier | {str(partition): offset})
        return {self.name.key(_REWIND): msgspec.json.encode(self.rewind)}

    def rewound(self) -> None:
        """The sink knows of the rewind."""
        key = self.name.key(_REWIND)
        self.backend.commit(Transaction(table={key: None}, fence=self.fence))
        self.rewind = None

    def _take_stock(self) -> None:
        self.standings = {
            where: Standing(held.mark, sum(after - first for first, after in held.ranges()))
            for where, held in self.progress.items()
        }

    def _get(self, what: str, kind: type[S]) -> S | None:
        data = self.backend.table.get(*self.name.key(what))
        return None if data is None else msgspec.json.decode(data, type=kind)


def forget(backend: Backend, name: WriterName, appends: Appends = ()) -> None:
    """Remove a writer's books for good, and fence off whoever drives it. The records are stored
    with the last of them."""
    fence = raise_fence(backend.store, name.fence)
    for table in (f"ledger/{name}", f"ledger/{name.skipped}"):
        while page := backend.table.scan(table):
            entries = {TableKey(table, key): None for key, _ in page}
            backend.commit(Transaction(table=entries, fence=fence))
    rest = dict.fromkeys((name.key(_PLAN), name.key(_STATE), name.key(_REWIND)))
    backend.commit(Transaction(appends, rest, fence))
    backend.store.commit(Change(writes={FENCES + name.fence: None}))
