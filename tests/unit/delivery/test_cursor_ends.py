"""The state that an owner leaves to the next one, at a clean end and at a crash."""

from __future__ import annotations

from tailrace.backend.contract import Transaction
from tests.unit.delivery.consumed_unit import Unit, records, taken


def test_no_more_than_the_budget_is_delivered_beyond_the_committed_offset() -> None:
    unit = Unit(records(40, keys=40), records_max=8)
    in_flight = 0
    while unit.cursor.take(0.0) is not None or unit.feed(40):
        in_flight = unit.cursor.in_flight
    assert in_flight == 0
    assert unit.cursor.must_commit
    unit.commit()
    while unit.cursor.take(0.0) is not None:
        pass
    assert unit.cursor.in_flight == 8


def test_after_a_crash_messages_that_may_have_been_delivered_are_marked_and_the_rest_is_not() -> (
    None
):
    unit = Unit(records(40), records_max=8)
    for _ in range(5):
        row = unit.take()
        assert row is not None
        assert not unit.marked(row)
        unit.cursor.ack(row.offset)
    unit.open()
    marked = []
    while (row := unit.take()) is not None:
        marked.append(unit.marked(row))
        unit.cursor.ack(row.offset)
    assert marked == [True] * 8 + [False] * 32


def test_after_a_clean_end_nothing_is_marked() -> None:
    unit = Unit(records(9))
    for offset in taken(unit, 1):
        unit.cursor.ack(offset)
    unit.cursor.drain()
    unit.commit()
    unit.open()
    row = unit.take()
    assert row is not None
    assert row.offset == 1
    assert not unit.marked(row)


def test_after_a_clean_end_nothing_is_marked_although_the_answer_to_a_commit_was_lost() -> None:
    unit = Unit(records(9))
    unit.feed(4)
    unit.backend.commit(Transaction(table=unit.cursor.start_commit().writes))
    unit.cursor.drain()
    unit.commit()
    unit.open()
    row = unit.take()
    assert row is not None
    assert not unit.marked(row)


def test_messages_in_flight_at_a_clean_end_are_marked() -> None:
    unit = Unit(records(9))
    assert taken(unit, 1) == [0]
    unit.cursor.release()
    assert unit.cursor.drained
    unit.commit()
    unit.open()
    first, second = unit.take(), unit.take()
    assert first is not None
    assert second is not None
    assert [(o.offset, unit.marked(o)) for o in (first, second)] == [(0, True), (1, False)]


def test_a_message_in_flight_at_a_clean_end_is_counted_as_delivered() -> None:
    unit = Unit(records(9))
    for offset in taken(unit, 1):
        unit.cursor.ack(offset)
    taken(unit, 1)
    unit.cursor.release()
    assert unit.cursor.counts == (2, 1, 0, 0)


def test_an_acknowledgement_after_a_message_in_flight_was_given_up_still_counts() -> None:
    unit = Unit(records(9))
    assert taken(unit, 3) == [0, 1, 2]
    unit.cursor.release()
    assert unit.cursor.ack(1)
    assert unit.cursor.drained
    unit.commit()
    unit.open()
    offers = [unit.take(), unit.take()]
    assert [row.offset for row in offers if row is not None] == [0, 2]


def test_a_clean_end_keeps_the_marks_of_an_earlier_crash() -> None:
    unit = Unit(records(9))
    taken(unit, 3)
    unit.open()
    row = unit.take()
    assert row is not None
    unit.cursor.ack(row.offset)
    unit.cursor.drain()
    unit.commit()
    unit.open()
    row = unit.take()
    assert row is not None
    assert (row.offset, unit.marked(row)) == (1, True)


def test_a_unit_that_had_nothing_to_do_writes_nothing() -> None:
    unit = Unit(records(9))
    assert unit.cursor.start_commit().writes == {}
    unit.cursor.drain()
    assert unit.cursor.start_commit().writes == {}
