"""Lanes keep the order of a key, whatever the ids are."""

from __future__ import annotations

import tracemalloc

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import DataObject, data, floats, integers, sampled_from

from tailrace.delivery.key_lanes import KeyLanes, LaneState

KEYS = [b"a", b"b", b"c"]


def test_the_next_message_of_a_key_is_ready_when_the_first_is_resolved() -> None:
    lanes = KeyLanes()
    lanes.extend(b"a", [1, 2])
    lanes.append(b"b", 3)
    assert [lanes.pop_ready(), lanes.pop_ready()] == [b"a", b"b"]
    assert not lanes.ready(0.0)
    assert lanes.remove_head(b"a") == 1
    assert lanes.pop_ready() == b"a"
    assert lanes.head(b"a") == 2
    assert (len(lanes), lanes.in_flight) == (2, 2)


def test_a_message_that_waits_is_ready_at_its_time_and_not_before() -> None:
    lanes = KeyLanes()
    lanes.extend(b"a", [1, 2])
    lanes.wait(lanes.pop_ready(), 5.0)
    assert lanes.due == 5.0
    assert not lanes.ready(4.9)
    assert lanes.ready(5.0)
    assert lanes.head(lanes.pop_ready()) == 1


def test_a_failed_message_blocks_its_key_until_it_is_removed_or_released() -> None:
    lanes = KeyLanes()
    lanes.extend(b"a", [1, 2])
    lanes.fail(lanes.pop_ready())
    assert lanes.idle
    assert (lanes.failed, lanes.ready(1e9)) == (1, False)
    lanes.release(b"a")
    assert lanes.head(lanes.pop_ready()) == 1
    lanes.fail(b"a")
    assert lanes.remove_head(b"a") == 1
    assert (lanes.failed, lanes.head(lanes.pop_ready())) == (0, 2)


def test_many_messages_of_a_key_keep_their_order_without_those_that_were_removed() -> None:
    lanes = KeyLanes()
    lanes.extend(b"a", range(3))
    lanes.extend(b"a", range(3, 30))
    lanes.fail(lanes.pop_ready())
    for removed in (1, 2, 9, 29):
        lanes.remove(b"a", removed)
    found = []
    while b"a" in lanes:
        found.append(lanes.remove_head(b"a"))
        if lanes.ready(0.0):
            lanes.pop_ready()
    assert found == [each for each in range(30) if each not in (1, 2, 9, 29)]


def test_a_key_with_one_message_takes_less_than_400_bytes() -> None:
    lanes, keys = KeyLanes(), 10_000
    tracemalloc.start()
    try:
        for number in range(keys):
            lanes.append(b"customer-%06d" % number, number)
        while lanes.ready(0.0):
            lanes.fail(lanes.pop_ready())
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown / keys < 400


def test_an_expected_message_holds_its_lane_and_is_ready_once_it_arrives() -> None:
    lanes = KeyLanes()
    lanes.expect(b"a")
    assert b"a" in lanes
    assert (lanes.ready(0.0), lanes.lane_state(b"a"), len(lanes)) == (False, LaneState.EXPECTED, 1)
    lanes.arrive(b"a", 7)
    assert lanes.head(lanes.pop_ready()) == 7
    lanes.expect(b"a")
    lanes.remove_head(b"a")
    assert (lanes.count(b"a"), lanes.lane_state(b"a")) == (1, LaneState.EXPECTED)


def test_a_waiting_message_that_was_released_is_not_made_ready_twice() -> None:
    lanes = KeyLanes()
    lanes.extend(b"a", [1, 2])
    lanes.wait(lanes.pop_ready(), 5.0)
    lanes.release(b"a")
    lanes.remove_head(lanes.pop_ready())
    lanes.wait(lanes.pop_ready(), 9.0)
    assert not lanes.ready(5.0)
    assert lanes.ready(9.0)


def test_a_lane_that_is_empty_takes_no_memory() -> None:
    lanes = KeyLanes()
    for number in range(1000):
        lanes.append(b"%d" % number, number)
        lanes.remove_head(lanes.pop_ready())
    assert (len(lanes), list(lanes.names), lanes.idle) == (0, [], True)


class LanesModel(RuleBasedStateMachine):
    """Lanes beside a list of ids for each key."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = KeyLanes()
        self.model: dict[bytes, list[int | None]] = {key: [] for key in KEYS}
        self.in_flight: dict[bytes, int] = {}
        self.next_id = 0
        self.now = 0.0

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    @rule(key=sampled_from(KEYS), count=integers(1, 3))
    def append(self, key: bytes, count: int) -> None:
        if None in self.model[key]:
            return  # ids rise: what is expected arrives first
        ids = [self._new_id() for _ in range(count)]
        self.lanes.extend(key, ids)
        self.model[key] += ids

    @rule(key=sampled_from(KEYS))
    def expect(self, key: bytes) -> None:
        self.lanes.expect(key)
        self.model[key].append(None)

    @rule(key=sampled_from(KEYS))
    def arrive(self, key: bytes) -> None:
        if None in self.model[key]:
            id = self._new_id()
            self.lanes.arrive(key, id)
            self.model[key][self.model[key].index(None)] = id

    @rule(seconds=floats(0, 3))
    def pop(self, seconds: float) -> None:
        self.now += seconds
        while self.lanes.ready(self.now):
            key = self.lanes.pop_ready()
            assert isinstance(key, bytes)
            assert key not in self.in_flight
            assert self.lanes.head(key) == self.model[key][0]
            self.in_flight[key] = self.lanes.head(key)

    @precondition(lambda self: self.in_flight)
    @rule(drawn=data(), what=sampled_from(["remove", "wait", "fail"]))
    def resolve(self, drawn: DataObject, what: str) -> None:
        key = drawn.draw(sampled_from(sorted(self.in_flight)))
        del self.in_flight[key]
        if what == "remove":
            assert self.lanes.remove_head(key) == self.model[key].pop(0)
        elif what == "wait":
            self.lanes.wait(key, self.now + 1.0)
        else:
            self.lanes.fail(key)

    @rule(key=sampled_from(KEYS))
    def release(self, key: bytes) -> None:
        if self.lanes.lane_state(key) in (LaneState.FAILED, LaneState.WAITING):
            self.lanes.release(key)

    @rule(key=sampled_from(KEYS), drawn=data())
    def remove(self, key: bytes, drawn: DataObject) -> None:
        """Remove any message of a lane whose first one failed."""
        known = [id for id in self.model[key] if id is not None]
        if self.lanes.lane_state(key) is LaneState.FAILED:
            id = drawn.draw(sampled_from(known))
            assert self.lanes.reaches(key, id)
            assert not self.lanes.reaches(key, self.next_id + 1)
            self.lanes.remove(key, id)
            self.model[key].remove(id)

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.lanes) == sum(map(len, self.model.values()))
        assert self.lanes.in_flight == len(self.in_flight)
        assert all((key in self.lanes) == bool(self.model[key]) for key in KEYS)
        assert all(self.lanes.count(key) == len(self.model[key]) for key in KEYS)

    def teardown(self) -> None:
        """Nothing is stuck: every message that has an id is delivered in the end."""
        for key in KEYS:
            while None in self.model[key]:
                self.arrive(key)
        for key in list(self.in_flight):
            self.lanes.wait(key, self.now)
        self.in_flight.clear()
        while len(self.lanes):
            for key in KEYS:
                self.release(key)
            self.pop(1.0)
            assert self.in_flight
            for key in list(self.in_flight):
                assert self.lanes.remove_head(key) == self.model[key].pop(0)
            self.in_flight.clear()


TestLanesModel = LanesModel.TestCase
TestLanesModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
