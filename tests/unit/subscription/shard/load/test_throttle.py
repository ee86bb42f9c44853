"""A throttle lets few messages fail while many fail, and all be called when few do."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from tailrace.delivery.throttle import PROBES_PER_S, Throttle
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.load.throttle import RISE, ErrorThrottle

ARRIVALS = 1000


class Line:
    """A shard to which messages come at a constant rate, and an endpoint that takes some time for
    each. `fails` tells if a call fails."""

    def __init__(
        self,
        *,
        throttle: ErrorThrottle | None = None,
        rate: int = ARRIVALS,
        concurrency: int = 64,
        takes_s: float = 0.02,
    ) -> None:
        self.throttle = throttle or ErrorThrottle(Throttle(0.1, 1000))
        self.now = 500.0
        self.failed: Counter[int] = Counter()
        """The number of failures in each second since the beginning."""
        self.succeeded: Counter[int] = Counter()
        self._rate = rate
        self._concurrency = concurrency
        self._takes_s = takes_s
        self._waiting = 0
        self._calls: list[float] = []
        self._next_arrival = self.now
        self._random = Random(7)

    def run(self, seconds: float, fails: Callable[[float], bool]) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            self._begin()
            due = self.throttle.due
            times = [self._next_arrival, *self._calls[:1]] + ([] if due is None else [due])
            at = min(times)
            if at > end:
                self.now = end
                return
            assert at > self.now or at in (self._next_arrival, *self._calls[:1])
            self.now = at
            if at == self._next_arrival:
                self._waiting += 1
                self._next_arrival += 1 / self._rate
            elif self._calls and at == self._calls[0]:
                heapq.heappop(self._calls)
                self._end(fails(self._random.random()))

    def _begin(self) -> None:
        self.throttle.waits = False
        while self._waiting and len(self._calls) < self._concurrency:
            if not self.throttle.admit(self.now):
                return
            self.throttle.begin(1)
            self._waiting -= 1
            heapq.heappush(self._calls, self.now + self._takes_s)

    def _end(self, failed: bool) -> None:
        second = int(self.now - 500.0)
        if failed:
            self.throttle.failed(self.now)
            self.failed[second] += 1
        else:
            self.throttle.succeeded(1, self.now)
            self.succeeded[second] += 1


def healthy(draw: float) -> bool:
    return False


def half(draw: float) -> bool:
    return draw < 0.5


def broken(draw: float) -> bool:
    return True


def average(counts: Counter[int], first: int, after: int) -> float:
    return sum(counts[second] for second in range(first, after)) / (after - first)


@pytest.mark.parametrize("warm_s", [0, 10])
def test_with_half_of_the_messages_failing_few_fail_and_as_many_succeed(warm_s: int) -> None:
    line = Line()
    line.run(warm_s, healthy)
    line.run(60, half)
    assert line.failed.total() <= 1000 + 60 * 110
    last = (warm_s + 50, warm_s + 60)
    assert 80 <= average(line.failed, *last) <= 110
    assert average(line.succeeded, *last) >= 80


def test_the_calls_do_not_fall_further_in_hours() -> None:
    line = Line(rate=200)
    line.run(10, healthy)
    line.run(1200, half)
    early, late = average(line.succeeded, 200, 300), average(line.succeeded, 1100, 1200)
    assert late >= 0.9 * early
    assert late >= 16


def test_a_share_of_current_successes_would_collapse() -> None:
    class Naive(ErrorThrottle):
        def _learn(self) -> None:
            self.usual += (self._succeeded - self.usual) * RISE

    line = Line(throttle=Naive(Throttle(0.1, 1000)))
    line.run(10, healthy)
    line.run(60, half)
    assert average(line.succeeded, 60, 70) < 80


@pytest.mark.parametrize("before", [half, broken])
def test_calls_are_as_many_as_before_within_five_seconds_of_recovery(
    before: Callable[[float], bool],
) -> None:
    line = Line()
    line.run(10, healthy)
    line.run(60, before)
    line.run(6, healthy)
    assert line.succeeded[75] >= ARRIVALS, "and what waits meanwhile is worked off"


@pytest.mark.parametrize("takes_s", [0.02, 0.3])
def test_an_endpoint_that_never_worked_recovers_as_soon(takes_s: float) -> None:
    line = Line(takes_s=takes_s, concurrency=400)
    line.run(60, broken)
    line.run(6, healthy)
    assert line.succeeded[65] >= ARRIVALS


def test_while_everything_fails_the_share_of_the_usual_rate_fails() -> None:
    line = Line()
    line.run(10, healthy)
    line.run(60, broken)
    assert average(line.failed, 60, 70) == pytest.approx(100, rel=0.1)
    assert line.succeeded.total() == pytest.approx(10 * ARRIVALS, rel=0.01)


def test_an_endpoint_that_was_never_healthy_is_probed() -> None:
    line = Line()
    line.run(60, broken)
    assert average(line.failed, 40, 60) == pytest.approx(PROBES_PER_S, rel=0.2)


def test_few_failures_hold_nothing_back() -> None:
    line = Line()
    line.run(60, lambda draw: draw < 0.05)
    assert line.throttle.held_at is None
    assert line.succeeded.total() + line.failed.total() == pytest.approx(60_000, rel=0.01)


def test_an_outage_for_a_moment_holds_nothing_back() -> None:
    line = Line()
    line.run(10, healthy)
    line.run(0.5, broken)
    line.run(5, healthy)
    assert line.throttle.held_at is None


def test_a_night_without_messages_forgets_nothing() -> None:
    line = Line()
    line.run(30, healthy)
    line.now += 36_000
    line._next_arrival = line.now
    assert line.throttle.usual == pytest.approx(ARRIVALS, rel=0.05)


def test_another_rate_becomes_the_usual_one_fast_if_it_is_higher_and_slowly_if_lower() -> None:
    line = Line(rate=100)
    line.run(60, healthy)
    line._rate = 1000
    line.run(20, healthy)
    assert line.throttle.usual >= 900
    line._rate = 100
    line.run(60, healthy)
    assert line.throttle.usual >= 700
    line.run(1800, healthy)
    assert line.throttle.usual <= 150


def test_failures_at_once_are_no_usual_rate() -> None:
    line = Line(rate=5000, takes_s=0.001)
    line.run(5, lambda draw: draw < 0.99)
    assert line.throttle.usual <= 150


def test_the_usual_rate_outlives_its_owner() -> None:
    line = Line()
    line.run(10, healthy)
    counts = ShardCounts()
    line.throttle.store(counts)
    assert counts.usual == pytest.approx(1000, rel=0.1)
    assert counts.held_ms == 0
    taken_over = ErrorThrottle(Throttle(0.1, 20))
    taken_over.restore(counts.taken_over(), 0.0)
    line = Line(throttle=taken_over)
    line.run(30, half)
    assert average(line.succeeded, 20, 30) >= 80


def test_when_a_message_was_held_back_is_stored() -> None:
    throttle = ErrorThrottle(Throttle(0.1, 20))
    throttle.restore(ShardCounts(), 1_000_000.0)
    line = Line(throttle=throttle)
    line.run(5, broken)
    counts = ShardCounts()
    throttle.store(counts)
    assert 1_000_000 + 500_000 < counts.held_ms <= 1_000_000 + 505_000


def test_calls_that_tell_nothing_give_their_place_back() -> None:
    throttle = ErrorThrottle(Throttle(0.1, 20))
    for _ in range(30):
        throttle.begin(1)
        throttle.failed(0.0)
    assert not throttle.admit(0.0)
    throttle = ErrorThrottle(Throttle(0.1, 20))
    for _ in range(30):
        throttle.begin(1)
        throttle.withdraw(1)
    assert throttle.admit(0.0)


def test_without_a_policy_nothing_is_held_back() -> None:
    line = Line(throttle=ErrorThrottle(None))
    line.run(10, broken)
    assert line.failed.total() == pytest.approx(10_000, rel=0.01)
    line.throttle.follow(Throttle(0.1, 20))
    line.run(10, broken)
    assert line.failed.total() <= 10_100
    line.throttle.follow(None)
    line.run(1, broken)
    assert line.failed.total() > 11_000
