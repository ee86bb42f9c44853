"""One consumed unit and its owner, on a log of offsets and keys alone."""

from __future__ import annotations

from tailrace.backend.contract import Transaction
from tailrace.delivery.cursor import BYTES_MAX, Cursor
from tailrace.delivery.fetched import FetchedBatch, FetchedRow
from tailrace.delivery.handed_out import read_handed_out
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.ledger import Progress

WHERE = Partition("orders", 0, 1)
CONSUMER = "group:billing"
Records = list[tuple[int, bytes | None]]


def records(count: int, keys: int = 3) -> Records:
    return [(offset, b"k%d" % (offset % keys)) for offset in range(count)]


class Unit:
    """A log of one partition, the table of its group, and the cursor of its current owner."""

    def __init__(
        self,
        log: Records,
        end: int | None = None,
        *,
        records_max: int = 100,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.log = log
        self.bytes_max = bytes_max
        self.end = log[-1][0] + 1 if end is None else end
        self.records_max = records_max
        self.backend = MemoryBackend()
        self.attempts = 3
        self.open()

    def open(self) -> None:
        """Start a new owner, which has only the committed state."""
        table = self.backend.table
        self.cursor = Cursor(
            WHERE,
            1,
            Progress.load(table, CONSUMER, WHERE),
            group="billing",
            attempts=self.attempts,
            records_max=self.records_max,
            bytes_max=self.bytes_max,
            handed_out=read_handed_out(table, "billing", str(WHERE)),
            end=self.end,
        )

    def commit(self) -> None:
        writes = self.cursor.start_commit().writes
        if writes:
            self.backend.commit(Transaction(table=writes))
            self.cursor.saved()

    def feed(self, count: int) -> bool:
        """Feed the next records. False if the cursor wants none, or is at the end."""
        cursor = self.cursor
        if not cursor.wants or cursor.read_from >= self.end:
            if cursor.read_from >= self.end and not cursor.ended:
                cursor.end(self.end)
            return False
        start = cursor.read_from
        some = [record for record in self.log if record[0] >= start][:count]
        after = some[-1][0] + 1 if len(some) == count else self.end
        offsets, keys = [offset for offset, _ in some], [key for _, key in some]
        cursor.feed(FetchedBatch.listed(WHERE, start, after, offsets, keys))
        return True

    def take(self, now: float = 0.0) -> FetchedRow | None:
        """Return the next offer, after feeding and committing as needed."""
        while (row := self.cursor.take(now)) is None:
            if self.cursor.must_commit:
                self.commit()
            elif not self.feed(4):
                return None
        return row

    def marked(self, row: FetchedRow) -> bool:
        return row.attempt > 1 or row.offset < row.batch.redelivered_below


def taken(unit: Unit, count: int) -> list[int]:
    offers = [unit.take() for _ in range(count)]
    return [row.offset for row in offers if row is not None]
