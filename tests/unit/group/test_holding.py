"""One unit being consumed: order per key, what comes again, and what is held back."""

from __future__ import annotations

import pytest

from tests.unit.group.held_unit import Unit, records, taken


def test_one_after_the_other_is_acknowledged_by_moving_a_number() -> None:
    unit = Unit(records(10))
    for expected in range(10):
        offer = unit.take()
        assert offer is not None
        assert offer.offset == expected
        assert unit.holding.plain
        assert unit.holding.ack(expected)
    assert unit.take() is None
    assert unit.holding.finished
    assert unit.holding.mark == 10


def test_a_key_comes_again_only_after_the_one_before_it_was_acknowledged() -> None:
    unit = Unit(records(9))
    assert taken(unit, 9) == [0, 1, 2]
    unit.holding.ack(1)
    assert taken(unit, 9) == [4]
    unit.holding.ack(0)
    unit.holding.ack(2)
    assert taken(unit, 9) == [3, 5]


def test_messages_without_a_key_wait_for_nobody() -> None:
    unit = Unit([(offset, None) for offset in range(5)])
    assert taken(unit, 5) == [0, 1, 2, 3, 4]


def test_acknowledgements_out_of_order_leave_holes_that_the_next_owner_delivers() -> None:
    unit = Unit(records(6, keys=6))
    assert taken(unit, 6) == [0, 1, 2, 3, 4, 5]
    for offset in (0, 2, 5):
        unit.holding.ack(offset)
    assert unit.holding.mark == 1
    unit.commit()
    unit.open()
    assert taken(unit, 6) == [1, 3, 4]


def test_lanes_are_gone_once_nothing_is_under_way() -> None:
    unit = Unit(records(6))
    taken(unit, 3)
    assert not unit.holding.plain
    for offset in (2, 0, 1):
        unit.holding.ack(offset)
    assert taken(unit, 3) == [3, 4, 5]
    for offset in (3, 4, 5):
        unit.holding.ack(offset)
    assert unit.holding.mark == 6
    assert unit.holding.plain


def test_a_message_given_back_comes_again_in_its_place_when_its_time_has_come() -> None:
    unit = Unit(records(6))
    assert taken(unit, 1) == [0]
    assert unit.holding.nack(0, delay_s=5.0, now=10.0)
    assert taken(unit, 9) == [1, 2]
    assert unit.holding.due == 15.0
    assert unit.take(now=14.9) is None
    again = unit.take(now=15.0)
    assert again is not None
    assert (again.offset, again.attempt) == (0, 2)
    unit.holding.ack(0)
    assert taken(unit, 9) == [3]


def test_a_key_whose_message_used_up_its_attempts_is_blocked_and_others_go_on() -> None:
    unit = Unit(records(9))
    for attempt in (1, 2, 3):
        offer = unit.take()
        assert offer is not None
        assert (offer.offset, offer.attempt) == (0, attempt)
        assert unit.holding.nack(0, 0.0, 0.0) == (attempt < 3)
    assert [offer.offset for offer in unit.holding.failures] == [0]
    done = []
    while (offer := unit.take()) is not None:
        done.append(offer.offset)
        unit.holding.ack(offer.offset)
    assert done == [1, 2, 4, 5, 7, 8]
    assert unit.holding.failed == 1
    unit.holding.failures.clear()
    assert unit.holding.stalled
    assert not unit.holding.finished


def test_to_acknowledge_a_failed_message_is_to_pass_over_it() -> None:
    unit = Unit(records(6))
    for _ in range(3):
        unit.take()
        unit.holding.nack(0, 0.0, 0.0)
    assert unit.holding.ack(0)
    for offset in (1, 2, 3, 4, 5):
        offer = unit.take()
        assert offer is not None
        assert unit.holding.ack(offer.offset), offset
    unit.feed(1)
    assert unit.holding.finished


@pytest.mark.parametrize("bound", ["records_max", "bytes_max"])
def test_what_is_held_back_is_bounded(bound: str) -> None:
    unit = Unit([(offset, b"hot") for offset in range(50)], **{bound: 10})  # of a byte each
    assert taken(unit, 1) == [0]
    assert unit.take() is None
    assert not unit.holding.wants
    assert unit.holding.held_back == 9
    for offset in range(50):
        assert unit.holding.ack(offset)
        unit.take()
    unit.feed(1)
    assert unit.holding.finished


def test_what_is_held_back_keeps_no_chunk_alive() -> None:
    unit = Unit([(offset, b"hot" if offset % 4 == 0 else b"k%d" % offset) for offset in range(16)])
    first = unit.take()
    assert first is not None
    while (offer := unit.take()) is not None:
        unit.holding.ack(offer.offset)
    unit.holding.ack(0)
    second = unit.take()
    assert second is not None
    assert second.offset == 4
    assert len(second.chunk) == 1


def test_draining_offers_nothing_new_and_ends_with_what_is_in_hand() -> None:
    unit = Unit(records(9))
    taken(unit, 2)
    unit.holding.drain()
    assert unit.take() is None
    assert unit.holding.in_hand == 2
    unit.holding.ack(0)
    unit.holding.nack(1, 0.0, 0.0)
    assert unit.take() is None
    assert unit.holding.mark == 1
    assert unit.holding.drained


def test_gaps_in_the_log_are_no_holes() -> None:
    unit = Unit([(3, b"a"), (7, b"b"), (8, b"a"), (1 << 33, b"c")], end=(1 << 33) + 9)
    for _ in range(4):
        offer = unit.take()
        assert offer is not None
        unit.holding.ack(offer.offset)
    assert unit.take() is None
    assert unit.holding.finished
    assert unit.holding.mark == (1 << 33) + 9


def test_counts_tell_what_happened() -> None:
    unit = Unit(records(6))
    for offset in taken(unit, 1):
        unit.holding.ack(offset)
    assert taken(unit, 3) == [1, 2, 3]
    unit.holding.ack(2)
    unit.holding.nack(1, 0.0, 0.0)
    assert unit.holding.counts == (4, 2, 1)


@pytest.mark.parametrize("offset", [0, 5, 99])
def test_to_acknowledge_what_is_not_in_hand_changes_nothing(offset: int) -> None:
    unit = Unit(records(9))
    taken(unit, 2)
    unit.holding.ack(0)
    mark = unit.holding.mark
    assert not unit.holding.ack(offset)
    assert not unit.holding.nack(offset, 0.0, 0.0)
    assert unit.holding.mark == mark
