"""What the hub keeps of a writer: its ledger, its open plan, its state, all under one fence.

    ledger/lake/crm              its progress in each partition of the commit log
    ledger/lake/crm/skipped      of that, what no sink was given: parked, or acknowledged by an
                                 operator, or before its start
    writers/lake      crm/plan   the open plan
                      crm/state  what it is doing, for people
                      crm/rewind where an operator wants it to begin again
                      crm/log    the identity of the commit log that all of it is about
    fence/writer/lake/crm        raised by whoever drives it, and by operators

Whoever raised the fence last may write. A driver that finds itself fenced was overtaken by an
operator: it raises the fence again and reads everything anew, once the operator is done.

Offsets mean nothing in another log of the same name: where the commit log was deleted and made
again, the books begin anew.
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
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import Plan, acknowledged
from tailrace.topic.ledger import Progress
from tailrace.topic.view import View

S = TypeVar("S", bound=msgspec.Struct)

Appends: TypeAlias = "tuple[tuple[Partition, Records], ...]"

_PLAN: Final = "plan"
_STATE: Final = "state"
_REWIND: Final = "rewind"
_LOG: Final = "log"


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

    @property
    def ledgers(self) -> tuple[str, str]:
        """The tables of both ledgers."""
        return f"ledger/{self}", f"ledger/{self.skipped}"

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
        self._log: str | None = None
        self._log_saved = False
        self.is_new = True
        """Whether nothing was stored of this writer when the books were read."""
        self._obsolete: dict[TableKey, bytes | None] = {}

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
        self.state = stored_state(self.backend, self.name)
        self.rewind = self._get(_REWIND, Rewind)
        log = self.backend.table.get(*self.name.key(_LOG))
        self._log = None if log is None else log.decode()
        self._log_saved = log is not None
        self.is_new = log is None
        self._obsolete = {}
        self.find_partitions()

    def find_partitions(self) -> None:
        """Open the ledger of partitions that were added to the commit log."""
        definition = self.view.refresh().definition
        if self._log not in (None, definition.identity):
            self._begin_anew()
        self._log = definition.identity
        found = [
            Partition(storage.topic, storage.storage, number)
            for storage in definition.storage_topics(self.view.topic)
            for number in range(storage.partitions)
        ]
        for where in found[len(self.progress) :]:
            self.progress[where] = self._ledger(str(self.name), where)
            self.skipped[where] = self._ledger(self.name.skipped, where)
        if len(found) != len(self.standings):
            self._take_stock()

    def _ledger(self, consumer: str, where: Partition) -> Progress:
        if self._obsolete:
            return Progress(consumer, where)
        return Progress.load(self.backend.table, consumer, where)

    def _begin_anew(self) -> None:
        """All that is stored is about another log: the next commit removes it."""
        self.progress.clear()
        self.skipped.clear()
        self.plan = self.rewind = None
        self._log_saved = False
        self._obsolete = dict.fromkeys((self.name.key(_PLAN), self.name.key(_REWIND)))
        for table in self.name.ledgers:
            start = b""
            while page := self.backend.table.scan(table, start):
                self._obsolete |= {TableKey(table, key): None for key, _ in page}
                start = page[-1][0] + b"\0"

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
        entries = self._obsolete | dict(extra or {})
        ledgers = [*self.progress.values(), *self.skipped.values()]
        for progress in ledgers:
            entries |= progress.writes()
        if plan != self.plan:
            entries[self.name.key(_PLAN)] = None if plan is None else msgspec.json.encode(plan)
        if state is not None and state != self.state:
            entries[self.name.key(_STATE)] = msgspec.json.encode(state)
        if not entries and not appends:
            return
        if not self._log_saved and self._log is not None:
            entries[self.name.key(_LOG)] = self._log.encode()
        self.backend.commit(Transaction(appends, entries, self.fence))
        for progress in ledgers:
            progress.saved()
        self.plan = plan
        self.state = state or self.state
        self._log_saved, self._obsolete = True, {}
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
        return _stored(self.backend, self.name, what, kind)


def stored_state(backend: Backend, name: WriterName) -> WriterState:
    """What a hub says of a writer; that of a new one where it says nothing."""
    return _stored(backend, name, _STATE, WriterState) or WriterState()


def _stored(backend: Backend, name: WriterName, what: str, kind: type[S]) -> S | None:
    data = backend.table.get(*name.key(what))
    return None if data is None else msgspec.json.decode(data, type=kind)


def forget(backend: Backend, name: WriterName, appends: Appends = ()) -> None:
    """Remove a writer's books for good, and fence off whoever drives it. The records are stored
    with the last of them."""
    fence = raise_fence(backend.store, name.fence)
    for table in name.ledgers:
        while page := backend.table.scan(table):
            entries = {TableKey(table, key): None for key, _ in page}
            backend.commit(Transaction(table=entries, fence=fence))
    rest = dict.fromkeys(name.key(what) for what in (_PLAN, _STATE, _REWIND, _LOG))
    backend.commit(Transaction(appends, rest, fence))
    backend.store.commit(Change(writes={FENCES + name.fence: None}))
