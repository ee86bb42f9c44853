"""The stored messages of a unit, as rows: holes, order, blocks, failed commits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.queue.effects.database import EffectRow
from tailrace.queue.effects.progress_rows import UnitProgress
from tailrace.subscription.shard.attempts import Origin

BLOCK = 65_536
UNIT = "1.0"
EARLIER = "0.7"
STREAMS = (Partition("orders", 0, 1), Partition("orders", 1, 0))

offsets = st.builds(
    lambda block, offset: max(0, block * BLOCK + offset), st.integers(0, 3), st.integers(-4, 4)
)
origins = st.builds(Origin, st.sampled_from(STREAMS), offsets, st.integers(0, 1))
commits = st.lists(st.tuples(st.lists(origins, min_size=1, max_size=5), st.booleans()))

Rows = dict[tuple[str, str, int], EffectRow]


def store(rows: Rows, written: list[EffectRow]) -> None:
    for row in written:
        if row.done is None:
            rows.pop(row[:3], None)  # It may have come and gone in one commit.
        else:
            rows[row[:3]] = row


@example(earlier=[], commits=[([Origin(STREAMS[0], offset) for offset in (1, 0)], True)])
@given(earlier=st.lists(origins, max_size=5), commits=commits)
def test_rows_hold_exactly_the_committed_messages_in_any_order(
    earlier: list[Origin], commits: list[tuple[list[Origin], bool]]
) -> None:
    rows: Rows = {}
    if earlier:
        store(rows, UnitProgress(EARLIER, ()).stage(earlier))
    expected = set(earlier)
    progress = UnitProgress(UNIT, rows.values())
    for batch, succeeds in commits:
        batch = [origin for origin in batch if origin not in expected]
        if not batch:
            continue
        written = progress.stage(batch)
        if succeeds:
            store(rows, written)
            progress.saved(batch)
            expected.update(batch)
        else:
            progress.reload(rows.values())
        assert all(row.unit == UNIT for row in written)
    seen = {origin for batch, _ in commits for origin in batch} | expected
    for known in (progress, UnitProgress(UNIT, rows.values())):
        for origin in seen:
            for near in (-1, 0, 1):
                each = origin._replace(offset=max(0, origin.offset + near))
                assert known.stored(each) is (each in expected)
                assert known.stored_by_unit([each]) is (each in expected - set(earlier))


def test_a_commit_does_not_rewrite_the_rows_of_other_blocks() -> None:
    progress = UnitProgress(UNIT, ())
    for offset in (*range(2, 2000, 2), *range(BLOCK, BLOCK + 2000, 2)):
        origin = Origin(STREAMS[0], offset)
        progress.stage([origin])
        progress.saved([origin])
    written = progress.stage([Origin(STREAMS[0], 2 * BLOCK + 1)])
    assert [row.block for row in written] == [2]


def test_messages_without_holes_are_one_small_row() -> None:
    rows: Rows = {}
    progress = UnitProgress(UNIT, ())
    for offset in range(BLOCK - 500, BLOCK + 500):
        origin = Origin(STREAMS[0], offset)
        store(rows, progress.stage([origin]))
        progress.saved([origin])
    ranges = [row for row in rows.values() if row.block >= 0]
    assert [row.block for row in ranges] == [0]
    assert len(ranges[0].done or b"") < 20


def test_a_message_that_is_stored_is_refused() -> None:
    progress = UnitProgress(UNIT, ())
    origin = Origin(STREAMS[0], 4)
    progress.stage([origin])
    progress.saved([origin])
    with pytest.raises(InvalidValue, match=r"orders/0\.1@4"):
        progress.stage([Origin(STREAMS[0], 5), origin])
    assert not progress.stored(Origin(STREAMS[0], 5))


def test_offsets_without_effects_are_stored_by_the_next_commit_of_their_stream() -> None:
    rows: Rows = {}
    progress, where = UnitProgress(UNIT, ()), STREAMS[0]
    for offset in range(1, 2000, 2):
        progress.pass_over(Origin(where, offset - 1), offset)
        batch = [Origin(where, offset)]
        store(rows, progress.stage(batch))
        progress.saved(batch)
    assert sum(len(row.done or b"") for row in rows.values()) < 20
    again = UnitProgress(UNIT, rows.values())
    assert all(again.stored(Origin(where, offset)) for offset in range(2000))
    assert not again.stored(Origin(where, 2000))


def test_offsets_without_effects_outlive_a_commit_that_fails() -> None:
    rows: Rows = {}
    progress, where = UnitProgress(UNIT, ()), STREAMS[0]
    progress.pass_over(Origin(where, 0), 5)
    progress.stage([Origin(where, 5)])
    progress.pass_over(Origin(where, 6), 8)
    progress.reload(())
    assert not progress.stored(Origin(where, 4))
    store(rows, progress.stage([Origin(where, 8)]))
    progress.saved([Origin(where, 8)])
    again = UnitProgress(UNIT, rows.values())
    assert [offset for offset in range(9) if not again.stored(Origin(where, offset))] == [5]


def test_many_offsets_without_effects_and_without_a_commit_take_little_memory() -> None:
    progress, where = UnitProgress(UNIT, ()), STREAMS[0]
    for pair in range(0, 20_000, 2):  # as calls end in another order than they began
        for offset in (pair + 1, pair):
            progress.pass_over(Origin(where, offset), offset + 1)
    assert len(progress._passed[str(where)]) <= 1_001
    written = progress.stage([Origin(where, 20_000)])
    assert sum(len(row.done or b"") for row in written) < 20
