"""Progress against a set of offsets, and ledgers that return what was written."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.backend.contract import TableKey
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.topic.ledger import Progress, ledger_keys, load_storage

ORDERS = Partition("orders", 1, 7)
BLOCK = 65_536

points = st.integers(0, 60)
ranges = st.tuples(points, points).map(lambda pair: (min(pair), max(pair)))
scales = st.sampled_from([1, 9_001, 2**32])
"""One model serves offsets that are dense, that spread over blocks, and that leave wide gaps."""


class DictTable:
    """A table of one process."""

    def __init__(self) -> None:
        self.entries: dict[TableKey, bytes] = {}

    def commit(self, writes: Mapping[TableKey, bytes | None]) -> None:
        for key, value in writes.items():
            self.entries.pop(key, None)
            if value is not None:
                self.entries[key] = value

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.entries.get(TableKey(table, key))

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        found = sorted(
            (key, value)
            for (name, key), value in self.entries.items()
            if name == table and start <= key and (end is None or key < end)
        )
        return found[:limit]


def billing(mark: int = 0) -> Progress:
    return Progress("billing", ORDERS, mark)


def state(progress: Progress) -> tuple[int, list[tuple[int, int]]]:
    return progress.mark, list(progress.ranges())


def test_a_hole_below_the_highest_acknowledged_offset_is_redelivered() -> None:
    progress = billing()
    progress.ack(0, 24)
    progress.ack(25, 30)
    assert progress.mark == 24
    assert progress.highest == 29
    assert list(progress.holes(30)) == [(24, 25)]


def test_records_after_the_last_acknowledged_offset_are_delivered() -> None:
    progress = billing()
    progress.ack(0, 13)
    assert progress.highest == 12
    assert list(progress.holes(16)) == [(13, 16)]


def test_a_consumer_that_acknowledged_nothing_gets_everything() -> None:
    progress = billing()
    assert progress.highest == -1
    assert list(progress.holes(3)) == [(0, 3)]
    assert list(progress.holes(0)) == []


def test_filling_a_hole_moves_the_mark_over_all_acknowledged_offsets_above_it() -> None:
    progress = billing()
    progress.ack(1, 5)
    progress.ack(5, 9)
    assert progress.mark == 0
    progress.ack(0, 1)
    assert state(progress) == (9, [])


@given(scales, st.lists(ranges), points)
def test_progress_holds_exactly_the_offsets_that_were_acknowledged(
    scale: int, acks: list[tuple[int, int]], end: int
) -> None:
    progress, model = billing(), set[int]()
    for start, stop in acks:
        before = progress.mark
        progress.ack(start * scale, stop * scale)
        model.update(range(start, stop))
        assert progress.mark >= before
    for point in range(61):
        assert progress.acked(point * scale) == (point in model)
        assert progress.acked((point + 1) * scale - 1) == (point in model)
    missing = [point for low, high in progress.holes(end * scale) for point in (low, high)]
    assert missing == sorted(set(missing)), "holes are in order, apart and not empty"
    holes = zip(missing[::2], missing[1::2], strict=True)
    held = {point for low, high in holes for point in range(low // scale, high // scale)}
    assert held == set(range(end)) - model
    assert progress.mark == min(set(range(62)) - model) * scale
    assert progress.highest == (max(model, default=-1) + 1) * scale - 1


@given(scales, st.lists(st.one_of(ranges, st.none(), st.just("lost"))))
def test_a_ledger_returns_the_written_progress_even_after_failed_commits(
    scale: int, steps: list[tuple[int, int] | str | None]
) -> None:
    table, progress = DictTable(), billing()
    for step in steps:
        if isinstance(step, tuple):
            progress.ack(step[0] * scale, step[1] * scale)
        elif step is None:
            table.commit(progress.writes())
            progress.saved()
            assert state(Progress.load(table, "billing", ORDERS)) == state(progress)
            assert progress.writes() == {}
        else:
            progress.writes()
    table.commit(progress.writes())
    progress.saved()
    loaded = Progress.load(table, "billing", ORDERS)
    assert state(loaded) == state(progress)
    assert loaded.writes() == {}
    assert len(table.entries) == 1 + len({low // BLOCK for low, _ in progress.ranges()})


@given(st.lists(ranges), st.lists(ranges))
def test_merging_acknowledges_the_offsets_of_either(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    one, other, both = billing(), billing(), billing()
    for start, end in some:
        one.ack(start, end)
        both.ack(start, end)
    for start, end in others:
        other.ack(start, end)
        both.ack(start, end)
    one.merge(other)
    assert state(one) == state(both)


def test_an_unchanged_block_is_not_written_again() -> None:
    progress = billing()
    progress.ack(1, 2)
    progress.ack(5 * BLOCK + 1, 5 * BLOCK + 2)
    progress.writes()
    progress.saved()
    progress.ack(5 * BLOCK + 7, 5 * BLOCK + 8)
    key = b"orders/1.7/block/" + (5).to_bytes(8)
    assert list(progress.writes()) == [TableKey("ledger/billing", key)]


def test_blocks_below_the_mark_are_removed() -> None:
    table, progress = DictTable(), billing()
    for number in range(4):
        progress.ack(number * BLOCK + 10, number * BLOCK + 20)
    table.commit(progress.writes())
    progress.saved()
    assert len(table.entries) == 5
    progress.ack(0, 4 * BLOCK)
    table.commit(progress.writes())
    assert table.entries == {
        TableKey("ledger/billing", b"orders/1.7/mark"): (4 * BLOCK).to_bytes(8)
    }


def test_a_range_over_a_wide_gap_is_one_small_entry() -> None:
    progress = billing()
    progress.ack(1, 3 * 2**32)
    written = progress.writes()
    assert len(written) == 2
    assert all(value is not None and len(value) < 24 for value in written.values())


def test_a_commit_of_unknown_outcome_is_followed_by_the_same_entries() -> None:
    table, progress = DictTable(), billing()
    table.commit(progress.writes())
    progress.saved()
    progress.ack(0, 10)
    progress.ack(20, 30)
    table.commit(progress.writes())  # Committed, but the caller did not learn the outcome.
    progress.reset(0)
    table.commit(progress.writes())
    assert state(Progress.load(table, "billing", ORDERS)) == (0, [])


def test_a_reset_moves_back_and_removes_acknowledgements_above() -> None:
    table, progress = DictTable(), billing()
    progress.ack(0, 10)
    progress.ack(20, 30)
    table.commit(progress.writes())
    progress.saved()
    progress.reset(5)
    assert list(progress.holes(30)) == [(5, 30)]
    table.commit(progress.writes())
    assert state(Progress.load(table, "billing", ORDERS)) == (5, [])


def test_partitions_and_consumers_do_not_see_each_other() -> None:
    table = DictTable()
    for consumer in ("billing", "billing2"):
        for number in (7, 70):
            progress = Progress(consumer, Partition("orders", 1, number))
            progress.ack(0, len(consumer) * number)
            progress.ack(1000, 1001)
            table.commit(progress.writes())
    loaded = Progress.load(table, "billing", ORDERS)
    assert state(loaded) == (49, [(1000, 1001)])
    assert state(Progress.load(table, "billing", Partition("orders", 1, 8))) == (0, [])


def test_a_ledger_of_more_blocks_than_one_scan_returns_is_loaded_completely() -> None:
    table, progress = DictTable(), billing()
    for number in range(2_500):
        progress.ack(number * BLOCK + 1, number * BLOCK + 2)
    table.commit(progress.writes())
    assert state(Progress.load(table, "billing", ORDERS)) == state(progress)


def test_a_chosen_start_is_written_before_anything_is_acknowledged() -> None:
    table = DictTable()
    table.commit(billing(mark=100).writes())
    assert Progress.load(table, "billing", ORDERS).mark == 100


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 4)])
def test_an_invalid_range_is_refused(start: int, end: int) -> None:
    progress = billing()
    with pytest.raises(InvalidValue, match="0 <= start <= end"):
        progress.ack(start, end)
    with pytest.raises(InvalidValue, match="0 or more"):
        progress.reset(-1)
    assert state(progress) == (0, [])


def test_the_ledgers_of_a_storage_topic_are_loaded_together() -> None:
    table = DictTable()
    written = {}
    for number, storage in ((0, 1), (10, 1), (2, 1), (3, 11), (4, 0)):
        progress = Progress("c", Partition("orders", storage, number))
        progress.ack(0, number + 1)
        progress.ack(100_000 + number, 100_047)
        written[storage, number] = progress
        table.commit(progress.writes())
    found = load_storage(table, "c", "orders", 1)
    assert set(found) == {0, 2, 10}
    for number, progress in found.items():
        wanted = written[1, number]
        assert (progress.mark, list(progress.ranges())) == (wanted.mark, list(wanted.ranges()))
        assert progress.writes() == {}
    assert len(ledger_keys(table, "c", "orders")) == 10
    assert load_storage(table, "other", "orders", 1) == {}
