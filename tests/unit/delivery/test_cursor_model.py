"""A cursor against a model: order per key, nothing lost, redelivered messages marked."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.delivery.fetched import FetchedRow
from tailrace.delivery.handed_out import read_handed_out
from tailrace.topic.ledger import Progress
from tests.unit.delivery.consumed_unit import CONSUMER, WHERE, Unit


class Model:
    """The rules of a unit for all its owners."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.key = dict(unit.log)
        self.in_flight: dict[int, FetchedRow] = {}
        self.acked: set[int] = set()
        self.committed: set[int] = set()
        self.ever_delivered: set[int] = set()
        self.nacked: set[int] = set()

    def took(self, row: FetchedRow) -> None:
        offset, key = row.offset, self.key[row.offset]
        assert offset not in self.acked, "what is acknowledged never comes again"
        assert row.batch.keys[row.row] == key
        if key is not None:
            earlier = {other for other, k in self.unit.log if k == key and other < offset}
            assert earlier <= self.acked, "all before it of its key are done"
        if offset in self.ever_delivered:
            assert self.unit.marked(row), "what was in somebody's hands before is marked"
        self.in_flight[offset] = row
        self.ever_delivered.add(offset)
        delivered = (self.ever_delivered_here | {offset}) - self.committed
        assert len(delivered) <= self.unit.records_max, "the budget"
        self.ever_delivered_here.add(offset)

    ever_delivered_here: set[int]

    def opened(self) -> None:
        self.in_flight.clear()
        self.ever_delivered_here = set()
        self.acked = set(self.committed)


@example(seed=4005655884, count=74, keys=1, records_max=2, one_at_a_time=True)
@example(seed=193016889, count=76, keys=6, records_max=9, one_at_a_time=True)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    keys=st.integers(1, 8),
    records_max=st.integers(1, 12),
    one_at_a_time=st.booleans(),
)
def test_order_per_key_holds_and_nothing_is_lost_in_any_sequence_of_events(
    seed: int, count: int, keys: int, records_max: int, one_at_a_time: bool
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
            (30, 25, 8, 10, 5, 1, 1),
        )[0]:
            case "take" if not (one_at_a_time and model.in_flight):
                if (row := unit.cursor.take(now)) is not None:
                    model.took(row)
            case "ack" if model.in_flight:
                chosen = draw.choice(sorted(model.in_flight))
                assert unit.cursor.ack(chosen)
                model.acked.add(chosen)
                del model.in_flight[chosen]
            case "nack" if model.in_flight:
                chosen = draw.choice(sorted(model.in_flight))
                assert unit.cursor.nack(chosen, draw.choice((0.0, 3.0, 60.0)), now)
                del model.in_flight[chosen]
            case "feed":
                unit.feed(draw.randint(1, 6))
            case "commit":
                unit.commit()
                model.committed = set(model.acked)
            case "crash":
                unit.open()
                model.opened()
            case "end":
                unit.cursor.drain()
                if draw.random() < 0.5:
                    unit.cursor.release()
                    model.in_flight.clear()
                for chosen in sorted(model.in_flight):
                    assert unit.cursor.ack(chosen)
                    model.acked.add(chosen)
                assert unit.cursor.drained
                unit.commit()
                model.committed = set(model.acked)
                unit.open()
                model.opened()
        assert unit.cursor.in_flight == len(model.in_flight)
        expected = min((o for o, _ in log if o not in model.acked), default=unit.end)
        assert unit.cursor.mark <= expected
    finish(unit, model, now)


def finish(unit: Unit, model: Model, now: float) -> None:
    for chosen in sorted(model.in_flight):
        unit.cursor.ack(chosen)
        model.acked.add(chosen)
    model.in_flight.clear()
    for step in range(20 * len(unit.log) + 20):
        unit.commit()
        row = unit.take(now + 100 + step)
        if row is None:
            break
        model.committed = set(model.acked)
        model.took(row)
        unit.cursor.ack(row.offset)
        model.acked.add(row.offset)
    assert unit.take(now + 1e9) is None
    assert model.acked == {offset for offset, _ in unit.log}
    assert unit.cursor.finished
    unit.commit()
    assert Progress.load(unit.backend.table, CONSUMER, WHERE).mark == unit.end
    assert read_handed_out(unit.backend.table, "billing", str(WHERE)) == 0
