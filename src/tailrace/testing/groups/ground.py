"""What truly is in the store of a simulated hub, whatever any process believes.

The memory backend that all processes share through their unreliable ways to it. It keeps beside it
what invariants ask for at every step, so that asking costs next to nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from tailrace.backend.contract import FENCES, Change, Transaction
from tailrace.group.definition import consumer_name, unit_fence
from tailrace.group.seeking import SEEKS
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tailrace.testing.memory import MemoryBackend
from tailrace.testing.memory.store import MemoryStore

_LEDGER: Final = "ledger/"
_MARK: Final = b"/mark"


class Moved(NamedTuple):
    """A mark of a ledger was written, by a commit that carried this fence."""

    consumer: str
    partition: str
    before: int
    after: int
    fence: str | None


class _Store(MemoryStore):
    """Tells of each change."""

    changed: Callable[[Change, int], None] = staticmethod(lambda change, version: None)

    def commit(self, change: Change) -> int:
        version = super().commit(change)
        self.changed(change, version)
        return version


class Ground(MemoryBackend):
    """A memory backend that tells of what is committed, and knows at once what invariants ask.

    `on_move` is called when a mark was written, `on_change` when the store was, `on_append` when a
    partition has more records.
    """

    def __init__(
        self,
        on_move: Callable[[Moved], None],
        on_change: Callable[[Change, int], None],
        on_append: Callable[[Partition], None],
    ) -> None:
        super().__init__("simulated")
        self.records: dict[Partition, list[Record]] = {}
        """All that was appended, in order."""
        self.store: _Store = _Store(self._gate, self.log)
        self.store.changed = self._changed
        self._marks: dict[tuple[str, str], int] = {}
        self._sought: set[tuple[str, int]] = set()
        self._on_move = on_move
        self._on_change = on_change
        self._on_append = on_append

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit all of it, or raise and write nothing."""
        ranges = super().commit(transaction)
        for (_, records), landed in zip(transaction.appends, ranges, strict=True):
            assert isinstance(records, tuple), "a simulation pushes single messages"
            for number, record in enumerate(records):
                self._appended(landed.partition, record._replace(offset=landed.start + number))
        fence = None if transaction.fence is None else transaction.fence.name
        for (table, key), value in transaction.table.items():
            if table.startswith(_LEDGER) and key.endswith(_MARK):
                after = 0 if value is None else int.from_bytes(value)
                self._marked(table.removeprefix(_LEDGER), key[: -len(_MARK)].decode(), after, fence)
        return ranges

    def record(self, partition: Partition, offset: int) -> Record:
        """The record at an offset."""
        records = self.records[partition]
        return records[bisect_left(records, offset, key=lambda record: record.offset)]

    def mark(self, group: str, partition: Partition) -> int:
        """Up to where a group's ledger has all of a partition acknowledged."""
        return self._marks.get((consumer_name(group), str(partition)), 0)

    def consumed(self, group: str, partition: Partition) -> bool:
        """Whether a group's ledger holds all records of a partition."""
        records = self.records.get(partition)
        return not records or records[-1].offset < self.mark(group, partition)

    def fenced_at(self, group: str, unit: str) -> int:
        """The epoch that the fence of a unit has now."""
        entry = self.store.get(FENCES + unit_fence(group, unit))
        return 0 if entry is None else entry.version

    def sought(self, group: str, epoch: int) -> bool:
        """Whether a seek came after a grant of this epoch: its owner may not have heard of it."""
        return any(version > epoch for name, version in self._sought if name == group)

    def _appended(self, partition: Partition, record: Record) -> None:
        self.records.setdefault(partition, []).append(record)
        self._on_append(partition)

    def _marked(self, consumer: str, partition: str, after: int, fence: str | None) -> None:
        before = self._marks.get((consumer, partition), 0)
        self._marks[consumer, partition] = after
        self._on_move(Moved(consumer, partition, before, after, fence))

    def _changed(self, change: Change, version: int) -> None:
        for key in change.writes:
            if key.startswith(SEEKS):
                self._sought.add((key.split("/")[1], version))
        self._on_change(change, version)
