"""The position in a file after the copies of its ranges."""

from __future__ import annotations

from tailrace.readers.file.file_position import FilePosition, Fingerprint
from tailrace.readers.file.ranges.range_position import RangePosition, whole_position

DATA = bytes(range(256)) * 4
FILE = FilePosition("a.jsonl", 1, 2)
START = FilePosition("a.jsonl", 1, 2, head=Fingerprint.of(DATA[:256]))


def _range(begin: int, end: int, *, given_up: bool = False) -> RangePosition:
    after = FilePosition("a.jsonl", 1, 2, begin, given_up=given_up).after(DATA[begin:end], 3)
    return RangePosition(begin, after, 3, 2)


def test_ranges_in_a_row_make_the_position_of_one_copy() -> None:
    found = whole_position(START, [_range(0, 300), _range(300, 700), _range(700, 1024)])
    assert found == FILE.after(DATA, 9)


def test_ranges_without_lines_are_passed_over() -> None:
    ranges = [RangePosition(), _range(0, 700), RangePosition(), _range(700, 700), _range(700, 1024)]
    assert whole_position(START, ranges) == FILE.after(DATA, 6)


def test_ranges_after_one_that_ended_early_are_not_counted() -> None:
    expected = FILE.after(DATA[:600], 6)
    assert whole_position(START, [_range(0, 300), _range(300, 600), _range(700, 1024)]) == expected
    assert whole_position(START, [_range(0, 600), _range(0, 0), _range(700, 1024)]).offset == 600


def test_a_file_none_of_which_was_read_is_followed_from_its_start() -> None:
    assert whole_position(START, []) == FILE
    assert whole_position(START, [RangePosition(), _range(300, 600)]) == FILE


def test_a_damaged_range_is_the_last_one() -> None:
    found = whole_position(START, [_range(0, 600, given_up=True), _range(600, 1024)])
    assert (found.offset, found.given_up) == (600, True)


def test_the_tail_has_enough_bytes_although_the_last_ranges_are_small() -> None:
    ranges = [_range(0, 300), _range(300, 500), _range(500, 520), _range(520, 600)]
    tail = whole_position(START, ranges).tail
    assert tail == Fingerprint.of(DATA[300:600])


def test_a_file_that_is_shorter_than_its_fingerprint_keeps_a_head_that_can_grow() -> None:
    start = FilePosition("a.jsonl", 1, 2, head=Fingerprint.of(DATA[:100]))
    found = whole_position(start, [_range(0, 40), _range(40, 90)])
    assert found.head == Fingerprint.of(DATA[:90])
    assert found.after(DATA[90:500], 1).head == Fingerprint.of(DATA[:256])
