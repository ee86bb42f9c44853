"""What the end of an owner, clean or by a crash, leaves to the next one."""

from __future__ import annotations

from tests.unit.group.held_unit import Unit, records, taken


def test_no_more_is_handed_out_beyond_what_is_committed_than_the_budget() -> None:
    unit = Unit(records(40, keys=40), records_max=8)
    handed = 0
    while unit.holding.take(0.0) is not None or unit.feed(40):
        handed = unit.holding.in_hand
    assert handed == 0
    assert unit.holding.must_commit
    unit.commit()
    while unit.holding.take(0.0) is not None:
        pass
    assert unit.holding.in_hand == 8


def test_after_a_crash_what_may_have_been_handed_out_is_marked_and_the_rest_is_not() -> None:
    unit = Unit(records(40), records_max=8)
    for _ in range(5):
        offer = unit.take()
        assert offer is not None
        assert not unit.marked(offer)
        unit.holding.ack(offer.offset)
    unit.open()
    marked = []
    while (offer := unit.take()) is not None:
        marked.append(unit.marked(offer))
        unit.holding.ack(offer.offset)
    assert marked == [True] * 8 + [False] * 32


def test_after_a_clean_end_nothing_is_marked() -> None:
    unit = Unit(records(9))
    for offset in taken(unit, 1):
        unit.holding.ack(offset)
    unit.holding.drain()
    unit.commit()
    unit.open()
    offer = unit.take()
    assert offer is not None
    assert offer.offset == 1
    assert not unit.marked(offer)


def test_what_was_in_hand_at_a_clean_end_is_marked() -> None:
    unit = Unit(records(9))
    assert taken(unit, 1) == [0]
    unit.holding.release()
    assert unit.holding.drained
    unit.commit()
    unit.open()
    first, second = unit.take(), unit.take()
    assert first is not None
    assert second is not None
    assert [(o.offset, unit.marked(o)) for o in (first, second)] == [(0, True), (1, False)]


def test_an_acknowledgement_after_what_was_in_hand_was_given_up_still_counts() -> None:
    unit = Unit(records(9))
    assert taken(unit, 3) == [0, 1, 2]
    unit.holding.release()
    assert unit.holding.ack(1)
    assert unit.holding.drained
    unit.commit()
    unit.open()
    offers = [unit.take(), unit.take()]
    assert [offer.offset for offer in offers if offer is not None] == [0, 2]


def test_a_clean_end_keeps_the_marks_of_a_crash_before_it() -> None:
    unit = Unit(records(9))
    taken(unit, 3)
    unit.open()
    offer = unit.take()
    assert offer is not None
    unit.holding.ack(offer.offset)
    unit.holding.drain()
    unit.commit()
    unit.open()
    offer = unit.take()
    assert offer is not None
    assert (offer.offset, unit.marked(offer)) == (1, True)


def test_a_unit_that_had_nothing_to_do_writes_nothing() -> None:
    unit = Unit(records(9))
    assert unit.holding.writes() == {}
    unit.holding.drain()
    assert unit.holding.writes() == {}
