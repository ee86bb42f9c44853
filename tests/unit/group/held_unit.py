"""One unit and whoever owns it, on a log of offsets and keys alone."""

from __future__ import annotations

from tailrace.backend.contract import Transaction
from tailrace.group.chunk import Chunk
from tailrace.group.holding import BYTES_MAX, Holding
from tailrace.group.offer import Offer
from tailrace.group.reach import read_reach
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.ledger import Progress

WHERE = Partition("orders", 0, 1)
CONSUMER = "group:billing"
Records = list[tuple[int, bytes | None]]


def records(count: int, keys: int = 3) -> Records:
    return [(offset, b"k%d" % (offset % keys)) for offset in range(count)]


class Unit:
    """A log of one partition, the table of its group, and whoever owns it now."""

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
        """Another owner, who has only what is committed."""
        table = self.backend.table
        self.holding = Holding(
            WHERE,
            1,
            Progress.load(table, CONSUMER, WHERE),
            group="billing",
            attempts=self.attempts,
            records_max=self.records_max,
            bytes_max=self.bytes_max,
            reach=read_reach(table, "billing", str(WHERE)),
            end=self.end,
        )

    def commit(self) -> None:
        writes = self.holding.writes()
        if writes:
            self.backend.commit(Transaction(table=writes))
            self.holding.saved()

    def feed(self, count: int) -> bool:
        """Feed the next records; False when nothing is wanted, or the end is known."""
        holding = self.holding
        if not holding.wants or holding.read_from >= self.end:
            if holding.read_from >= self.end and not holding.ended:
                holding.end(self.end)
            return False
        start = holding.read_from
        some = [record for record in self.log if record[0] >= start][:count]
        after = some[-1][0] + 1 if len(some) == count else self.end
        offsets, keys = [offset for offset, _ in some], [key for _, key in some]
        holding.feed(Chunk.listed(WHERE, start, after, offsets, keys))
        return True

    def take(self, now: float = 0.0) -> Offer | None:
        """The next one, fed and committed for as need be."""
        while (offer := self.holding.take(now)) is None:
            if self.holding.must_commit:
                self.commit()
            elif not self.feed(4):
                return None
        return offer

    def marked(self, offer: Offer) -> bool:
        return offer.attempt > 1 or offer.offset < offer.chunk.redelivered_below


def taken(unit: Unit, count: int) -> list[int]:
    offers = [unit.take() for _ in range(count)]
    return [offer.offset for offer in offers if offer is not None]
