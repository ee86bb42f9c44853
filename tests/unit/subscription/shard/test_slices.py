"""Slices of a batch: consecutive messages that are called together."""

from __future__ import annotations

import pytest

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.outcome import SUCCESS
from tailrace.message import Partition
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.slices import BatchSlice, Slices, sliced
from tests.support.shards import FAILED, Owner, Shop

ORDERS = Partition("orders", 0, 0)


def batch_of(*keys: bytes | None) -> FetchedBatch:
    offsets = list(range(10, 10 + len(keys)))
    return FetchedBatch.listed(ORDERS, 10, 10 + len(keys), offsets, list(keys))


@pytest.mark.parametrize(
    ("rows", "most", "sizes"),
    [(0, 3, []), (3, 3, [3]), (4, 3, [2, 2]), (10, 4, [4, 4, 2]), (1, 1, [1])],
)
def test_rows_are_divided_evenly(rows: int, most: int, sizes: list[int]) -> None:
    parts = list(sliced(batch_of(*[b"a"] * rows), range(rows), most))
    assert [len(each.rows) for each in parts] == sizes
    assert [row for each in parts for row in each.rows] == list(range(rows))


def test_a_slice_knows_its_keys_and_offsets() -> None:
    part = BatchSlice(batch_of(b"a", None, b"b", b""), range(1, 4))
    assert (part.first, part.after, part.offsets) == (11, 14, [11, 12, 13])
    assert part.has_key_in({b"x"}, {b"b"})
    assert not part.has_key_in({b"a"}, {None}, {b""})
    assert part.overlaps(frozenset({13, 99}))
    assert not part.overlaps(frozenset({10}))


def test_slices_count_what_is_not_resolved() -> None:
    slices = Slices()
    for part in sliced(batch_of(*[b"a"] * 5), range(5), 3):
        slices.add(part.first, part)
    assert (slices.messages, slices.size_bytes) == (5, 5)
    slices.remove(10)
    assert (slices.messages, slices.size_bytes) == (2, 2)


def slices_of(owner: Owner) -> list[list[int]]:
    """Take the calls that are possible now, and return the values of each."""
    found = []
    while (turn := owner.machine.take()) is not None:
        assert turn.slice is not None
        batch, rows = turn.slice
        found.append([batch.offsets[row] for row in rows])
    return found


def test_the_next_slice_is_permitted_by_the_commit_that_acknowledges_the_last() -> None:
    shop = Shop(slice_max=2)
    shop.push("a", 0, 1, 2, 3)
    owner = shop.owner()
    owner.advance()
    assert owner.commit()
    turn = owner.machine.take()
    assert turn is not None
    assert turn.messages == 2
    owner.machine.finished(turn, SUCCESS, now=0.0, now_ms=0, random=0.0)
    assert owner.machine.commit_due
    assert owner.commit()
    assert slices_of(owner) == [[2, 3]]
    assert shop.counts().acked == 2


@pytest.mark.parametrize(
    "shop", [Shop(slice_max=2, payload_bytes_max=1), Shop(slice_max=2, concurrency=1)]
)
def test_nothing_is_read_while_the_slices_hold_enough(shop: Shop) -> None:
    shop.push("a", *range(8))
    owner = shop.owner()
    owner.advance()
    shop.push("a", *range(8))
    owner.machine.wake([ORDERS])
    owner.advance()
    assert owner.machine.lag.slices.messages == 8
    for _ in range(4):
        assert owner.commit()
        (turn,) = [owner.machine.take()]
        assert turn is not None
        owner.machine.finished(turn, SUCCESS, now=0.0, now_ms=0, random=0.0)
    owner.advance()
    assert owner.machine.lag.slices.messages == 8


def test_a_slice_with_a_key_that_lags_is_taken_apart() -> None:
    shop = Shop(slice_max=8, concurrency=8)
    shop.push("a", 0)
    owner = shop.owner()
    assert owner.start_calls() == [0]
    owner.finish(0, FAILED)
    owner.advance()
    assert owner.commit()
    shop.push("a", 1)
    shop.push("b", 2)
    owner.machine.wake([ORDERS])
    assert owner.start_calls() == [2], "the other key is called by itself"
    owner.finish(2)
    owner.advance()
    assert owner.commit()
    assert shop.queued(Queue.RQ) == [0, 1]
