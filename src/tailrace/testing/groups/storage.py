"""The true storage of a simulated hub.

All processes share this memory backend, each through an unreliable one. It also keeps the values
that invariants read at every step, so that each read is cheap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from tailrace.backend.contract import FENCES, Change, Records, Transaction
from tailrace.group.store.definition import consumer_name, unit_fence
from tailrace.group.store.seek_steps import SEEKS
from tailrace.log.record import Encoded, Record, decode_records
from tailrace.log.schema import records_of
from tailrace.message import Partition, Range
from tailrace.subscription.store.names import RESETS, worker_group
from tailrace.testing.memory import MemoryBackend
from tailrace.testing.memory.store import MemoryStore

Appends: TypeAlias = Sequence[tuple[Partition, Sequence[Record]]]

_LEDGER: Final = "ledger/"
_MARK: Final = b"/mark"
_UNIT: Final = "@"


class MarkWritten(NamedTuple):
    """A write of a ledger's mark, in a commit with this fence."""

    consumer: str
    partition: str
    before: int
    after: int
    fence: str | None


class _ObservedStore(MemoryStore):
    """Calls `changed` after each commit."""

    changed: Callable[[Change, int], None] = staticmethod(lambda change, version: None)

    def commit(self, change: Change) -> int:
        version = super().commit(change)
        self.changed(change, version)
        return version


class SimulatedStorage(MemoryBackend):
    """A memory backend that reports its commits.

    `on_mark` is called when a mark was written, `on_change` when the store was changed, and
    `on_append` when a partition has more records.
    """

    def __init__(
        self,
        on_mark: Callable[[MarkWritten], None],
        on_change: Callable[[Change, int], None],
        on_append: Callable[[Partition], None],
    ) -> None:
        super().__init__("simulated")
        self.records: dict[Partition, list[Record]] = {}
        """All appended records, in order."""
        self.store: _ObservedStore = _ObservedStore(self._gate, self.log)
        self.store.changed = self._changed
        self._marks: dict[tuple[str, str], int] = {}
        self._sought: set[tuple[str, int]] = set()
        self._on_mark = on_mark
        self._on_change = on_change
        self._on_append = on_append
        self.on_commit: Callable[[Transaction, Appends], None] = lambda transaction, appended: None
        """Called after each transaction, with the records that it appended."""

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit a whole transaction, or raise and write nothing."""
        ranges = super().commit(transaction)
        appended: list[tuple[Partition, list[Record]]] = []
        for (_, records), landed in zip(transaction.appends, ranges, strict=True):
            stored = [
                record._replace(offset=landed.start + number)
                for number, record in enumerate(_records_of(records))
            ]
            appended.append((landed.partition, stored))
            for record in stored:
                self._appended(landed.partition, record)
        fence = None if transaction.fence is None else transaction.fence.name
        for (table, key), value in transaction.table.items():
            if table.startswith(_LEDGER) and key.endswith(_MARK):
                consumer, partition = table.removeprefix(_LEDGER), key[: -len(_MARK)].decode()
                if value is None and partition.startswith(_UNIT):
                    self._marks.pop((consumer, partition), None)  # the unit has ended
                    continue
                after = 0 if value is None else int.from_bytes(value)
                self._marked(consumer, partition, after, fence)
        self.on_commit(transaction, appended)
        return ranges

    def record(self, partition: Partition, offset: int) -> Record:
        """Return the record at an offset."""
        records = self.records[partition]
        return records[bisect_left(records, offset, key=lambda record: record.offset)]

    def mark(self, group: str, partition: Partition) -> int:
        """Return the mark of a group's ledger: all lower offsets are acknowledged."""
        return self._marks.get((consumer_name(group), str(partition)), 0)

    def consumed(self, group: str, partition: Partition) -> bool:
        """True if a group has acknowledged all records of a partition."""
        records = self.records.get(partition)
        return not records or records[-1].offset < self.mark(group, partition)

    def fenced_at(self, group: str, unit: str) -> int:
        """Return the present epoch of a unit's fence."""
        entry = self.store.get(FENCES + unit_fence(group, unit))
        return 0 if entry is None else entry.version

    def sought(self, group: str, epoch: int) -> bool:
        """True if a seek or an offset reset came after a grant of this epoch: its owner may not
        know that yet."""
        return any(version > epoch for name, version in self._sought if name == group)

    def _appended(self, partition: Partition, record: Record) -> None:
        self.records.setdefault(partition, []).append(record)
        self._on_append(partition)

    def _marked(self, consumer: str, partition: str, after: int, fence: str | None) -> None:
        before = self._marks.get((consumer, partition), 0)
        self._marks[consumer, partition] = after
        self._on_mark(MarkWritten(consumer, partition, before, after, fence))

    def _changed(self, change: Change, version: int) -> None:
        for key in change.writes:
            if key.startswith(SEEKS):
                self._sought.add((key.split("/")[1], version))
            elif key.startswith(RESETS):
                self._sought.add((worker_group(key.removeprefix(RESETS)), version))
        self._on_change(change, version)


def _records_of(records: Records) -> Iterable[Record]:
    if isinstance(records, tuple):
        return records
    if isinstance(records, Encoded):
        return decode_records(records.data)
    return records_of(records)
