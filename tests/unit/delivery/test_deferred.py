"""A key that waits while more of its messages arrive than are held back."""

from __future__ import annotations

from tests.unit.delivery.consumed_unit import Unit

LATER = 1000.0


def unit_with_a_waiting_key(records_max: int = 8) -> Unit:
    """A unit of forty records of two keys, of which the first record waits to be redelivered."""
    unit = Unit([(n, b"k%d" % (n % 2)) for n in range(40)], records_max=records_max)
    row = unit.take()
    assert row is not None
    unit.cursor.nack(row.offset, LATER, 0.0)
    return unit


def acked(unit: Unit, now: float = 0.0) -> list[int]:
    """Deliver and acknowledge all that can be at a time, and return the offsets."""
    found = []
    while (row := unit.take(now)) is not None:
        found.append(row.offset)
        assert unit.cursor.ack(row.offset)
        unit.commit()
    return found


def test_other_keys_continue_however_many_messages_of_a_waiting_key_arrive() -> None:
    unit = unit_with_a_waiting_key()
    assert acked(unit) == list(range(1, 40, 2))
    assert unit.cursor.held_back == 4
    assert not unit.cursor.stalled


def test_messages_that_were_deferred_are_delivered_in_order_when_their_key_continues() -> None:
    unit = unit_with_a_waiting_key()
    acked(unit)
    assert acked(unit, LATER) == list(range(0, 40, 2))
    assert unit.cursor.finished
    assert unit.cursor.mark == 40


def test_a_key_that_fails_again_among_messages_that_are_read_again_waits_again() -> None:
    unit = unit_with_a_waiting_key()
    acked(unit)
    found = []
    while (row := unit.take(LATER)) is not None and row.offset < 20:
        found.append(row.offset)
        unit.cursor.ack(row.offset)
    assert row is not None
    unit.cursor.nack(row.offset, LATER, LATER)
    assert found == list(range(0, 20, 2))
    assert acked(unit, LATER) == []
    assert acked(unit, 2 * LATER) == list(range(20, 40, 2))


def test_the_next_owner_delivers_what_was_deferred() -> None:
    unit = unit_with_a_waiting_key()
    acked(unit)
    unit.open()
    assert acked(unit) == list(range(0, 40, 2))


def test_records_that_are_read_again_are_delivered_within_the_budget() -> None:
    unit = unit_with_a_waiting_key()
    acked(unit)
    uncommitted = 0
    while (row := unit.cursor.take(LATER)) is not None or unit.cursor.must_commit or unit.feed(4):
        if row is not None:
            uncommitted += 1
            assert uncommitted <= 8
            unit.cursor.ack(row.offset)
        elif unit.cursor.must_commit:
            unit.commit()
            uncommitted = 0
    assert unit.cursor.mark == 40
