"""One unit being consumed: order per key, nothing lost, and what a crash brings back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.backend.contract import Transaction
from tailrace.group.chunk import Chunk
from tailrace.group.holding import Holding, Offer
from tailrace.group.reach import read_reach
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.ledger import Progress

WHERE = Partition("orders", 0, 1)
CONSUMER = "group:billing"
Records = list[tuple[int, bytes | None]]


def records(count: int, keys: int = 3) -> Records:
    return [(offset, b"k%d" % (offset % keys)) for offset in range(count)]


class Unit:
    """A log of one partition, the table of its group, and whoever owns it now."""

    def __init__(self, log: Records, end: int | None = None, *, records_max: int = 100) -> None:
        self.log = log
        self.end = log[-1][0] + 1 if end is None else end
        self.records_max = records_max
        self.backend = MemoryBackend()
        self.attempts = 3
        self.open()

    def open(self) -> None:
        """Another owner, who has only what is committed."""
        table = self.backend.table
        self.holding = Holding(
            WHERE,
            1,
            Progress.load(table, CONSUMER, WHERE),
            group="billing",
            attempts=self.attempts,
            records_max=self.records_max,
            reach=read_reach(table, "billing", str(WHERE)),
            end=self.end,
        )

    def commit(self) -> None:
        writes = self.holding.writes()
        if writes:
            self.backend.commit(Transaction(table=writes))
            self.holding.saved()

    def feed(self, count: int) -> bool:
        """Feed the next records; False when nothing is wanted, or the end is known."""
        holding = self.holding
        if not holding.wants or holding.read_from >= self.end:
            if holding.read_from >= self.end and not holding.ended:
                holding.end(self.end)
            return False
        start = holding.read_from
        some = [record for record in self.log if record[0] >= start][:count]
        after = some[-1][0] + 1 if len(some) == count else self.end
        offsets, keys = [offset for offset, _ in some], [key for _, key in some]
        holding.feed(Chunk.listed(WHERE, start, after, offsets, keys))
        return True

    def take(self, now: float = 0.0) -> Offer | None:
        """The next one, fed and committed for as need be."""
        while (offer := self.holding.take(now)) is None:
            if self.holding.must_commit:
                self.commit()
            elif not self.feed(4):
                return None
        return offer

    def marked(self, offer: Offer) -> bool:
        return offer.attempt > 1 or offer.offset < self.holding.handed_below


def taken(unit: Unit, count: int) -> list[int]:
    offers = [unit.take() for _ in range(count)]
    return [offer.offset for offer in offers if offer is not None]


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


def test_what_is_held_back_is_bounded() -> None:
    unit = Unit([(offset, b"hot") for offset in range(50)], records_max=10)
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


def test_counts_tell_what_happened() -> None:
    unit = Unit(records(6))
    for offset in taken(unit, 1):
        unit.holding.ack(offset)
    assert taken(unit, 3) == [1, 2, 3]
    unit.holding.ack(2)
    unit.holding.nack(1, 0.0, 0.0)
    assert unit.holding.counts == (4, 2, 1)


class Model:
    """What anybody may expect of a unit, whoever owns it."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.key = dict(unit.log)
        self.in_hand: dict[int, Offer] = {}
        self.acked: set[int] = set()
        self.committed: set[int] = set()
        self.ever_handed: set[int] = set()
        self.nacked: set[int] = set()

    def took(self, offer: Offer) -> None:
        offset, key = offer.offset, self.key[offer.offset]
        assert offset not in self.acked, "what is acknowledged never comes again"
        assert offer.chunk.keys[offer.row] == key
        if key is not None:
            earlier = {other for other, k in self.unit.log if k == key and other < offset}
            assert earlier <= self.acked, "all before it of its key are done"
        if offset in self.ever_handed:
            assert self.unit.marked(offer), "what was in somebody's hands before is marked"
        self.in_hand[offset] = offer
        self.ever_handed.add(offset)
        handed = (self.ever_handed_here | {offset}) - self.committed
        assert len(handed) <= self.unit.records_max, "the budget"
        self.ever_handed_here.add(offset)

    ever_handed_here: set[int]

    def opened(self) -> None:
        self.in_hand.clear()
        self.ever_handed_here = set()
        self.acked = set(self.committed)


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    keys=st.integers(1, 8),
    records_max=st.integers(1, 12),
)
def test_whatever_happens_order_per_key_holds_and_nothing_is_lost(
    seed: int, count: int, keys: int, records_max: int
) -> None:
    draw = random.Random(seed)
    offset, log = 0, []
    for _ in range(count):
        offset += draw.choice((1, 1, 1, 2, 5))
        log.append((offset, draw.choice([None, *(b"k%d" % key for key in range(keys))])))
    unit = Unit(log, end=offset + draw.choice((1, 3)), records_max=records_max)
    unit.attempts = 1_000_000
    unit.open()
    model = Model(unit)
    model.opened()
    now = 0.0
    for _ in range(30 * count):
        now += 1.0
        match draw.choices(
            ("take", "ack", "nack", "feed", "commit", "crash", "end"),
            (30, 25, 5, 10, 5, 1, 1),
        )[0]:
            case "take":
                if (offer := unit.holding.take(now)) is not None:
                    model.took(offer)
            case "ack" if model.in_hand:
                chosen = draw.choice(sorted(model.in_hand))
                assert unit.holding.ack(chosen)
                model.acked.add(chosen)
                del model.in_hand[chosen]
            case "nack" if model.in_hand:
                chosen = draw.choice(sorted(model.in_hand))
                assert unit.holding.nack(chosen, draw.choice((0.0, 3.0)), now)
                del model.in_hand[chosen]
            case "feed":
                unit.feed(draw.randint(1, 6))
            case "commit":
                unit.commit()
                model.committed = set(model.acked)
            case "crash":
                unit.open()
                model.opened()
            case "end":
                unit.holding.drain()
                if draw.random() < 0.5:
                    unit.holding.release()
                    model.in_hand.clear()
                for chosen in sorted(model.in_hand):
                    assert unit.holding.ack(chosen)
                    model.acked.add(chosen)
                assert unit.holding.drained
                unit.commit()
                model.committed = set(model.acked)
                unit.open()
                model.opened()
        assert unit.holding.in_hand == len(model.in_hand)
        expected = min((o for o, _ in log if o not in model.acked), default=unit.end)
        assert unit.holding.mark <= expected
    finish(unit, model, now)


def finish(unit: Unit, model: Model, now: float) -> None:
    for chosen in sorted(model.in_hand):
        unit.holding.ack(chosen)
        model.acked.add(chosen)
    model.in_hand.clear()
    for step in range(20 * len(unit.log) + 20):
        unit.commit()
        offer = unit.take(now + 10 + step)
        if offer is None:
            break
        model.committed = set(model.acked)
        model.took(offer)
        unit.holding.ack(offer.offset)
        model.acked.add(offer.offset)
    assert unit.take(now + 1e9) is None
    assert model.acked == {offset for offset, _ in unit.log}
    assert unit.holding.finished
    unit.commit()
    assert Progress.load(unit.backend.table, CONSUMER, WHERE).mark == unit.end
    assert read_reach(unit.backend.table, "billing", str(WHERE)) == 0


@pytest.mark.parametrize("offset", [0, 5, 99])
def test_to_acknowledge_what_is_not_in_hand_changes_nothing(offset: int) -> None:
    unit = Unit(records(9))
    taken(unit, 2)
    unit.holding.ack(0)
    mark = unit.holding.mark
    assert not unit.holding.ack(offset)
    assert not unit.holding.nack(offset, 0.0, 0.0)
    assert unit.holding.mark == mark
