"""Whatever happens to a unit: order per key, nothing lost, and marks of what came before."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tailrace.group.offer import Offer
from tailrace.group.reach import read_reach
from tailrace.topic.ledger import Progress
from tests.unit.group.held_unit import CONSUMER, WHERE, Unit


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
