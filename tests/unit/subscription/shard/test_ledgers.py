"""An acknowledgement is in no ledger before its transaction is stored."""

from __future__ import annotations

from tailrace.backend.contract import Transaction
from tailrace.delivery.fetched import FetchedBatch
from tailrace.message import Partition
from tailrace.subscription.shard.ledgers import Ledgers, gaps
from tailrace.subscription.shard.streams import QueueIds
from tailrace.testing import MemoryBackend
from tailrace.topic.ledger import Progress

WHERE = Partition("orders", 0, 0)


def batch(start: int, after: int, *offsets: int) -> FetchedBatch:
    return FetchedBatch.listed(WHERE, start, after, list(offsets), [None] * len(offsets))


def test_what_is_staged_is_not_acknowledged_before_it_is_saved() -> None:
    backend = MemoryBackend()
    ledgers = Ledgers({WHERE: Progress("crm", WHERE)})
    acks = {WHERE: [(0, 1), (5, 6)]}
    entries = ledgers.stage(acks)
    assert not ledgers.stored[WHERE].acked(0)
    assert ledgers.unresolved(WHERE, range(8)) == {1, 2, 3, 4, 6, 7}
    backend.commit(Transaction(table=entries))
    ledgers.saved(acks)
    stored = Progress.load(backend.table, "crm", WHERE)
    for offset in range(7):
        assert ledgers.stored[WHERE].acked(offset) == stored.acked(offset) == (offset in (0, 5))


def test_offsets_above_the_mark_are_unresolved_if_none_is_acknowledged_there() -> None:
    ledgers = Ledgers({WHERE: Progress("crm", WHERE)})
    assert ledgers.unresolved(WHERE, (0, 1)) == {0, 1}
    ledgers.stage({WHERE: [(0, 5)]})
    assert ledgers.unresolved(WHERE, (0, 4, 5, 9)) == {5, 9}


def test_a_commit_that_failed_is_repeated_with_what_came_after() -> None:
    backend = MemoryBackend()
    ledgers = Ledgers({WHERE: Progress("crm", WHERE)})
    ledgers.stage({WHERE: [(0, 1)]})
    both = {WHERE: [(0, 1), (1, 2)]}
    backend.commit(Transaction(table=ledgers.stage(both)))
    ledgers.saved(both)
    assert Progress.load(backend.table, "crm", WHERE).mark == 2
    assert ledgers.stage({WHERE: []}) == {}


def test_a_copy_is_independent() -> None:
    progress = Progress("crm", WHERE)
    progress.ack(0, 2)
    progress.ack(5, 7)
    twin = progress.copy()
    twin.ack(2, 5)
    assert (twin.mark, progress.mark) == (7, 2)
    assert list(progress.ranges()) == [(5, 7)]


def test_records_that_the_ledger_holds_are_passed_over() -> None:
    progress = Progress("crm", WHERE)
    progress.ack(0, 3)
    progress.ack(5, 6)
    ledgers = Ledgers({WHERE: progress})
    read = batch(0, 8, 1, 3, 4, 5, 7)
    assert [read.offsets[row] for row in ledgers.unacknowledged(read)] == [3, 4, 7]
    later = batch(8, 10, 8, 9)
    assert list(ledgers.unacknowledged(later)) == [0, 1]


def test_gaps_are_the_offsets_without_a_record() -> None:
    assert list(gaps(batch(0, 3, 0, 1, 2))) == []
    assert list(gaps(batch(0, 9, 2, 3, 6))) == [(0, 2), (4, 6), (7, 9)]
    assert list(gaps(batch(4, 6))) == [(4, 6)]


def test_the_ids_of_a_key_rise_over_storage_topics_that_are_added() -> None:
    ids = QueueIds([Partition("rq", 0, 0), Partition("rq", 0, 1)])
    old = ids.base(Partition("rq", 0, 1)) + (1 << 40)
    ids.add([Partition("rq", 0, 1), Partition("rq", 1, 0)])
    new = ids.base(Partition("rq", 1, 0))
    assert old < new
    assert ids.place(old) == (Partition("rq", 0, 1), 1 << 40)
    assert ids.place(new) == (Partition("rq", 1, 0), 0)
