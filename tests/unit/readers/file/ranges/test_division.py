"""The division of files: every byte and every row belongs to one range."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.readers.file.formats.parquet import RowGroup
from tailrace.readers.file.ranges.division import RANGES_MAX, FileRange, byte_ranges, row_ranges

GROUPS = st.lists(st.builds(RowGroup, st.integers(0, 9), st.integers(0, 99)), max_size=30)


def _are_adjacent(ranges: list[FileRange], end: int) -> bool:
    starts = [each.start for each in ranges]
    return starts == [0, *(each.end for each in ranges[:-1])] and ranges[-1].end == end


@given(st.integers(0, 10**15), st.integers(1, 10**9))
def test_every_byte_belongs_to_one_range(size: int, range_bytes: int) -> None:
    ranges = byte_ranges(size, range_bytes)
    assert bool(ranges) == (size > range_bytes)
    assert len(ranges) <= RANGES_MAX
    if ranges:
        assert _are_adjacent(ranges, size)
        assert all(each.end > each.start for each in ranges)


@given(GROUPS, st.integers(1, 500))
def test_every_row_belongs_to_one_range(groups: list[RowGroup], range_bytes: int) -> None:
    ranges = row_ranges(groups, range_bytes)
    assert len(ranges) != 1
    if ranges:
        assert _are_adjacent(ranges, sum(group.rows for group in groups))
        assert all(each.end > each.start for each in ranges)


def test_ranges_end_with_the_row_group_that_makes_them_large_enough() -> None:
    groups = [RowGroup(10, 60)] * 5
    assert row_ranges(groups, 100) == [(0, 20), (20, 40), (40, 50)]
    assert row_ranges(groups, 300) == []
    assert row_ranges([RowGroup(1, 1)] * 5000, 1)[:2] == [(0, 5), (5, 10)]


def test_a_very_large_file_has_larger_ranges() -> None:
    assert len(byte_ranges(1 << 40, 1 << 20)) == RANGES_MAX
