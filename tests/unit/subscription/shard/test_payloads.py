"""Records are kept up to a bound, and those used last stay."""

from __future__ import annotations

from tailrace.delivery.fetched import FetchedBatch
from tailrace.message import Partition
from tailrace.subscription.shard.payloads import ROW_BYTES, Payloads

WHERE = Partition("orders", 0, 0)
RECORD_BYTES = ROW_BYTES + 1


def batch(start: int, count: int) -> FetchedBatch:
    """A batch of records that count as one byte each."""
    offsets = list(range(start, start + count))
    return FetchedBatch.listed(WHERE, start, start + count, offsets, [None] * count)


def test_a_record_is_found_in_any_batch_that_is_kept() -> None:
    payloads = Payloads(100 * RECORD_BYTES)
    for start in (20, 0, 10):
        payloads.add(batch(start, 5))
    for offset in (0, 4, 12, 24):
        found = payloads.find(WHERE, offset)
        assert found is not None
        assert found.batch.offsets[found.row] == offset
    assert payloads.find(WHERE, 5) is None
    assert payloads.find(Partition("orders", 0, 1), 0) is None


def test_the_batch_that_was_used_longest_ago_is_forgotten() -> None:
    payloads = Payloads(20 * RECORD_BYTES)
    payloads.add(batch(0, 10))
    payloads.add(batch(10, 10))
    assert payloads.find(WHERE, 3) is not None
    payloads.add(batch(20, 10))
    assert payloads.find(WHERE, 3) is not None
    assert payloads.find(WHERE, 13) is None


def test_a_batch_over_the_bound_is_kept_until_the_next_one() -> None:
    payloads = Payloads(5 * RECORD_BYTES)
    payloads.add(batch(0, 10))
    assert payloads.find(WHERE, 9) is not None
    payloads.add(batch(0, 3))
    assert payloads.find(WHERE, 9) is None
    payloads.add(batch(3, 10))
    assert payloads.find(WHERE, 0) is None


def test_batches_that_overlap_are_both_searched() -> None:
    payloads = Payloads(100 * RECORD_BYTES)
    payloads.add(batch(0, 20))
    payloads.add(batch(5, 2))
    found = payloads.find(WHERE, 15)
    assert found is not None
    assert found.batch.offsets[found.row] == 15


def test_batches_without_records_are_not_kept() -> None:
    payloads = Payloads(20 * RECORD_BYTES)
    payloads.add(batch(0, 10))
    for start in range(10, 1000):
        payloads.add(batch(start, 0))
    assert len(payloads._batches) == 1
    assert payloads.find(WHERE, 3) is not None
