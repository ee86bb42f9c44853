"""The cursor of one unit: order per key, redelivery, and messages held back."""

from __future__ import annotations

import pytest

from tests.unit.delivery.consumed_unit import Unit, records, taken


def test_acknowledgements_in_order_only_move_the_mark() -> None:
    unit = Unit(records(10))
    for expected in range(10):
        row = unit.take()
        assert row is not None
        assert row.offset == expected
        assert unit.cursor.plain
        assert unit.cursor.ack(expected)
    assert unit.take() is None
    assert unit.cursor.finished
    assert unit.cursor.mark == 10


def test_the_next_message_of_a_key_is_delivered_only_after_the_one_before_is_acknowledged() -> None:
    unit = Unit(records(9))
    assert taken(unit, 9) == [0, 1, 2]
    unit.cursor.ack(1)
    assert taken(unit, 9) == [4]
    unit.cursor.ack(0)
    unit.cursor.ack(2)
    assert taken(unit, 9) == [3, 5]


def test_messages_without_a_key_do_not_wait_for_others() -> None:
    unit = Unit([(offset, None) for offset in range(5)])
    assert taken(unit, 5) == [0, 1, 2, 3, 4]


def test_acknowledgements_out_of_order_leave_holes_that_the_next_owner_delivers() -> None:
    unit = Unit(records(6, keys=6))
    assert taken(unit, 6) == [0, 1, 2, 3, 4, 5]
    for offset in (0, 2, 5):
        unit.cursor.ack(offset)
    assert unit.cursor.mark == 1
    unit.commit()
    unit.open()
    assert taken(unit, 6) == [1, 3, 4]


def test_lanes_are_removed_once_nothing_is_in_flight() -> None:
    unit = Unit(records(6))
    taken(unit, 3)
    assert not unit.cursor.plain
    for offset in (2, 0, 1):
        unit.cursor.ack(offset)
    assert taken(unit, 3) == [3, 4, 5]
    for offset in (3, 4, 5):
        unit.cursor.ack(offset)
    assert unit.cursor.mark == 6
    assert unit.cursor.plain


def test_a_nacked_message_is_redelivered_in_order_after_its_delay() -> None:
    unit = Unit(records(6))
    assert taken(unit, 1) == [0]
    assert unit.cursor.nack(0, delay_s=5.0, now=10.0)
    assert taken(unit, 9) == [1, 2]
    assert unit.cursor.due == 15.0
    assert unit.take(now=14.9) is None
    again = unit.take(now=15.0)
    assert again is not None
    assert (again.offset, again.attempt) == (0, 2)
    unit.cursor.ack(0)
    assert taken(unit, 9) == [3]


def test_a_key_whose_message_used_up_its_attempts_is_blocked_and_others_continue() -> None:
    unit = Unit(records(9))
    for attempt in (1, 2, 3):
        row = unit.take()
        assert row is not None
        assert (row.offset, row.attempt) == (0, attempt)
        assert unit.cursor.nack(0, 0.0, 0.0) == (attempt < 3)
    assert [row.offset for row in unit.cursor.failures] == [0]
    done = []
    while (row := unit.take()) is not None:
        done.append(row.offset)
        unit.cursor.ack(row.offset)
    assert done == [1, 2, 4, 5, 7, 8]
    assert unit.cursor.failed == 1
    unit.cursor.failures.clear()
    assert unit.cursor.stalled
    assert not unit.cursor.finished


def test_acknowledging_a_failed_message_skips_it() -> None:
    unit = Unit(records(6))
    for _ in range(3):
        unit.take()
        unit.cursor.nack(0, 0.0, 0.0)
    assert unit.cursor.ack(0)
    for offset in (1, 2, 3, 4, 5):
        row = unit.take()
        assert row is not None
        assert unit.cursor.ack(row.offset), offset
    unit.feed(1)
    assert unit.cursor.finished


@pytest.mark.parametrize("bound", ["records_max", "bytes_max"])
def test_the_number_of_messages_held_back_is_bounded(bound: str) -> None:
    unit = Unit([(offset, b"hot") for offset in range(50)], **{bound: 10})  # of a byte each
    assert taken(unit, 1) == [0]
    assert unit.take() is None
    assert not unit.cursor.wants
    assert unit.cursor.held_back == 9
    for offset in range(50):
        assert unit.cursor.ack(offset)
        unit.take()
    unit.feed(1)
    assert unit.cursor.finished


def test_messages_held_back_keep_no_batch_alive() -> None:
    unit = Unit([(offset, b"hot" if offset % 4 == 0 else b"k%d" % offset) for offset in range(16)])
    first = unit.take()
    assert first is not None
    while (row := unit.take()) is not None:
        unit.cursor.ack(row.offset)
    unit.cursor.ack(0)
    second = unit.take()
    assert second is not None
    assert second.offset == 4
    assert len(second.batch) == 1


def test_draining_delivers_nothing_new_and_ends_with_the_last_message_in_flight() -> None:
    unit = Unit(records(9))
    taken(unit, 2)
    unit.cursor.drain()
    assert unit.take() is None
    assert unit.cursor.in_flight == 2
    unit.cursor.ack(0)
    unit.cursor.nack(1, 0.0, 0.0)
    assert unit.take() is None
    assert unit.cursor.mark == 1
    assert unit.cursor.drained


def test_gaps_in_the_log_are_no_holes() -> None:
    unit = Unit([(3, b"a"), (7, b"b"), (8, b"a"), (1 << 33, b"c")], end=(1 << 33) + 9)
    for _ in range(4):
        row = unit.take()
        assert row is not None
        unit.cursor.ack(row.offset)
    assert unit.take() is None
    assert unit.cursor.finished
    assert unit.cursor.mark == (1 << 33) + 9


def test_counts_report_deliveries_and_acknowledgements() -> None:
    unit = Unit(records(6))
    for offset in taken(unit, 1):
        unit.cursor.ack(offset)
    assert taken(unit, 3) == [1, 2, 3]
    unit.cursor.ack(2)
    unit.cursor.nack(1, 0.0, 0.0)
    assert unit.cursor.counts == (4, 2, 1, 0)


@pytest.mark.parametrize("offset", [0, 5, 99])
def test_acknowledging_a_message_that_is_not_in_flight_changes_nothing(offset: int) -> None:
    unit = Unit(records(9))
    taken(unit, 2)
    unit.cursor.ack(0)
    mark = unit.cursor.mark
    assert not unit.cursor.ack(offset)
    assert not unit.cursor.nack(offset, 0.0, 0.0)
    assert unit.cursor.mark == mark
