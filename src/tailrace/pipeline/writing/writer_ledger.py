"""What a hub stores for a writer: its ledger, its open plan and its state, under one fence.

    ledger/lake/crm              the progress in each partition of the commit log
    ledger/lake/crm/skipped      the part of the progress that no sink was given: parked records,
                                 records that an operator acknowledged, records before the start
    writers/lake      crm/plan   the open plan
                      crm/state  the state, for people
                      crm/rewind where an operator rewound the writer to
                      crm/placement where its work is done on Spark, for people
                      crm/log    the identity of the commit log that the other entries are about
    fence/writer/lake/crm        raised by the process that drives the writer, and by operators

Only the process that raised the fence last may write. A driver that is fenced was overtaken by an
operator: it raises the fence again and reads everything again, once the operator is done.

Offsets have no meaning in another log of the same name: if the commit log was deleted and created
again, the ledger starts empty.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from tailrace.backend.table_scan import clear_table, scan_all
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer_status import WaitsFor, WriterStatus
from tailrace.pipeline.writing.placement import WorkPlacement
from tailrace.pipeline.writing.plan import WritePlan, acknowledged
from tailrace.topic.ledger import Progress
from tailrace.topic.view import View

S = TypeVar("S", bound=msgspec.Struct)

Appends: TypeAlias = "tuple[tuple[Partition, Records], ...]"

_PLAN: Final = "plan"
_STATE: Final = "state"
_REWIND: Final = "rewind"
_LOG: Final = "log"
_PLACEMENT: Final = "placement"


class WriterState(msgspec.Struct, frozen=True):
    """The state of a writer, for people. `rows` were delivered since its first start.

    `valid_rewinds` are the positions to which a writer can be rewound that failed because its sink
    refused a rewind. A writer that waits, for its sink or for something else, has failed `tries`
    times and tries again at `next_try_ms`; `error` is the reason. States that were stored without
    these fields are read too.
    """

    state: WriterStatus = WriterStatus.STOPPED
    rows: int = 0
    parked: int = 0
    since_ms: int = 0
    error: str | None = None
    position: str | None = None
    valid_rewinds: tuple[str, ...] = ()
    tries: int = 0
    next_try_ms: int = 0
    waits_for: WaitsFor = WaitsFor.SINK


class Rewind(msgspec.Struct, frozen=True):
    """Where an operator rewound a writer to; the sink does not know it yet."""

    offsets: dict[str, int]


class WriterName(msgspec.Struct, frozen=True):
    """The name of a writer of a pipeline, written ``lake/crm``."""

    pipeline: str
    writer: str

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.writer}"

    @classmethod
    def parse(cls, text: str) -> WriterName:
        """Parse ``lake/crm``; `InvalidValue` shows the form."""
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
        """The hold that an operator acquires to change the ledger."""
        return f"operator/{self}"

    @property
    def skipped(self) -> str:
        """The consumer whose ledger has the offsets that no sink was given."""
        return f"{self}/skipped"

    @property
    def ledgers(self) -> tuple[str, str]:
        """The tables of both ledgers."""
        return f"ledger/{self}", f"ledger/{self.skipped}"

    def key(self, what: str) -> TableKey:
        """Return the key of an entry beside the ledger."""
        return TableKey(f"writers/{self.pipeline}", f"{self.writer}/{what}".encode())


class PartitionProgress(NamedTuple):
    """The low-water mark of a partition, and the number of acknowledged offsets above it."""

    mark: int
    above: int


class WriterLedger:
    """The ledger of a writer; `take_over` raises its fence. For one thread at a time.

    `progress` and `skipped` have an entry for each partition of the commit log; `find_partitions`
    adds those of newer storage topics. `partition_progress`, as last stored or read, and `state`
    are replaced as a whole, so any thread may read them.
    """

    def __init__(self, backend: Backend, name: WriterName, view: View) -> None:
        self.backend = backend
        self.name = name
        self.view = view
        self.progress: dict[Partition, Progress] = {}
        self.skipped: dict[Partition, Progress] = {}
        self.fence = Fence(name.fence, 0)
        self.plan: WritePlan | None = None
        self.state = WriterState()
        self.rewind: Rewind | None = None
        self.partition_progress: dict[Partition, PartitionProgress] = {}
        self._log: str | None = None
        self._log_saved = False
        self.is_new = True
        """True if nothing was stored for this writer when the ledger was read."""
        self._obsolete: dict[TableKey, bytes | None] = {}

    def lag(self, ends: Mapping[Partition, int]) -> int:
        """Return about how many records below `ends` are not acknowledged; 0 if all are."""
        partition_progress = self.partition_progress
        lag = 0
        for where, end in ends.items():
            mark, above = partition_progress.get(where, PartitionProgress(0, 0))
            lag += max(1, end - mark - above) if mark < end else 0
        return lag

    def take_over(self) -> None:
        """Raise the fence, then read everything."""
        self.fence = raise_fence(self.backend.store, self.name.fence)
        self.read()

    def read(self) -> None:
        """Read everything, without raising the fence."""
        self.progress.clear()
        self.skipped.clear()
        self.partition_progress = {}
        self.plan = self._get(_PLAN, WritePlan)
        self.state = stored_state(self.backend, self.name)
        self.rewind = self._get(_REWIND, Rewind)
        log = self.backend.table.get(*self.name.key(_LOG))
        self._log = None if log is None else log.decode()
        self._log_saved = log is not None
        self.is_new = log is None
        self._obsolete = {}
        self.find_partitions()

    def find_partitions(self) -> None:
        """Load the progress of partitions that were added to the commit log, and drop that of
        deleted ones."""
        definition = self.view.refresh().definition
        if self._log not in (None, definition.identity):
            self._discard_stored()
        self._log = definition.identity
        found = [
            Partition(storage.topic, storage.storage, number)
            for storage in definition.storage_topics(self.view.topic)
            for number in range(storage.partitions)
        ]
        for where in self.progress.keys() - set(found):
            del self.progress[where], self.skipped[where]
        for where in found:
            if where not in self.progress:
                self.progress[where] = self._ledger(str(self.name), where)
                self.skipped[where] = self._ledger(self.name.skipped, where)
        if self.partition_progress.keys() != self.progress.keys():
            self._refresh_partition_progress()

    def _ledger(self, consumer: str, where: Partition) -> Progress:
        if self._obsolete:
            return Progress(consumer, where)
        return Progress.load(self.backend.table, consumer, where)

    def _discard_stored(self) -> None:
        """Forget everything stored, because it is about another log; the next commit deletes it."""
        self.progress.clear()
        self.skipped.clear()
        self.plan = self.rewind = None
        self._log_saved = False
        self._obsolete = dict.fromkeys((self.name.key(_PLAN), self.name.key(_REWIND)))
        for table in self.name.ledgers:
            entries = scan_all(self.backend.table, table)
            self._obsolete |= {TableKey(table, key): None for key, _ in entries}

    def overtaken(self) -> bool:
        """True if another process raised the fence after this one."""
        entry = self.backend.store.get(FENCES + self.fence.name)
        return entry is None or entry.version != self.fence.epoch

    def skip(self, partition: Partition, offsets: Offsets) -> None:
        """Acknowledge offsets that no sink is given."""
        self.progress[partition].ack(*offsets)
        self.skipped[partition].ack(*offsets)

    def commit(
        self,
        *,
        plan: WritePlan | None,
        state: WriterState | None = None,
        appends: Appends = (),
        extra: Mapping[TableKey, bytes | None] | None = None,
    ) -> None:
        """Store all progress, the plan and the state, and append records, in one transaction.

        Raises `Fenced` if another process raised the fence. The ledgers of all partitions are one
        consistent cut.
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
        self._refresh_partition_progress()

    def rewind_to(self, partition: Partition, offset: int) -> dict[TableKey, bytes | None]:
        """Remove the acknowledgements from `offset` on.

        Returns the entry that the caller must pass to `commit`, so that the next `begin` rewinds
        the sink. It replaces an earlier rewind of the partition that the sink does not know yet.
        """
        for progress in (self.progress[partition], self.skipped[partition]):
            kept = acknowledged(progress, Offsets(0, offset))
            progress.reset(0)
            for offsets in kept:
                progress.ack(*offsets)
        earlier = {} if self.rewind is None else self.rewind.offsets
        self.rewind = Rewind(earlier | {str(partition): offset})
        return {self.name.key(_REWIND): msgspec.json.encode(self.rewind)}

    def clear_rewind(self) -> None:
        """Remove the stored rewind, because the sink was rewound."""
        key = self.name.key(_REWIND)
        self.backend.commit(Transaction(table={key: None}, fence=self.fence))
        self.rewind = None

    def store_placement(self, placement: WorkPlacement) -> None:
        """Store where the writer's work is done. Raises `Fenced` as `commit` does."""
        data = None if placement == WorkPlacement() else msgspec.json.encode(placement)
        key = self.name.key(_PLACEMENT)
        if data != self.backend.table.get(*key):
            self.backend.commit(Transaction(table={key: data}, fence=self.fence))

    def _refresh_partition_progress(self) -> None:
        self.partition_progress = {
            where: PartitionProgress(
                held.mark, sum(after - first for first, after in held.ranges())
            )
            for where, held in self.progress.items()
        }

    def _get(self, what: str, kind: type[S]) -> S | None:
        return _stored(self.backend, self.name, what, kind)


def stored_state(backend: Backend, name: WriterName) -> WriterState:
    """Return the stored state of a writer; the state of a new writer if there is none."""
    return _stored(backend, name, _STATE, WriterState) or WriterState()


def stored_plan(backend: Backend, name: WriterName) -> WritePlan | None:
    """Return the open plan of a writer."""
    return _stored(backend, name, _PLAN, WritePlan)


def stored_placement(backend: Backend, name: WriterName) -> WorkPlacement:
    """Return where the work of a writer is done, as last stored; else by the executors."""
    return _stored(backend, name, _PLACEMENT, WorkPlacement) or WorkPlacement()


def _stored(backend: Backend, name: WriterName, what: str, kind: type[S]) -> S | None:
    data = backend.table.get(*name.key(what))
    return None if data is None else msgspec.json.decode(data, type=kind)


def delete_ledger(backend: Backend, name: WriterName, appends: Appends = ()) -> None:
    """Delete all that is stored for a writer, and fence off the process that drives it.

    The last transaction appends the records.
    """
    fence = raise_fence(backend.store, name.fence)
    for table in name.ledgers:
        clear_table(backend, table, fence)
    rest = dict.fromkeys(name.key(what) for what in (_PLAN, _STATE, _REWIND, _LOG, _PLACEMENT))
    backend.commit(Transaction(appends, rest, fence))
    backend.store.commit(Change(writes={FENCES + name.fence: None}))
