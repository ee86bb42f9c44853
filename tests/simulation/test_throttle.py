"""A subscription slows down while many of its messages fail, and not more than it must. In virtual
time."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import Any

import pytest

from tailrace import Delivery, Retry
from tailrace.operations.explain import explain
from tailrace.operations.status import status
from tailrace.testing import AppRun, DeliveryOutcome, run
from tailrace.testing.clock import ManualClock
from tests.support.app_runs import app_of

RATE = 1000
"""Messages per second."""
STEP_S = 0.1
LATER = Retry(attempts=None, first="1h", max="1h")


class Bank:
    """A handler that fails all messages, or each second one, while it is down."""

    def __init__(self) -> None:
        self.failing = 0
        """One of so many messages fails; 0 if none does."""

    def __call__(self, order: Delivery[int]) -> None:
        if self.failing and order.value % self.failing == 0:
            raise ConnectionError("down")


class Traffic:
    """A subscription to which messages come at a constant rate, each with a key of its own."""

    def __init__(self, handler: Any, **options: Any) -> None:
        self.run: AppRun = run(app_of(handler, **{"retry": LATER} | options))
        self.pushed = 0
        self._started = self.run.now

    def goes_on(self, seconds: float) -> None:
        topic, each = self.run.hub.topic("orders"), round(RATE * STEP_S)
        for _ in range(round(seconds / STEP_S)):
            numbers = range(self.pushed, self.pushed + each)
            topic.push_many([(f"k{number}", number) for number in numbers])
            self.pushed += each
            self.run.advance(f"{STEP_S:g}s", calls_max=200_000)

    def by_second(self) -> dict[DeliveryOutcome, Counter[int]]:
        """Return the number of calls in each second, by outcome."""
        found: dict[DeliveryOutcome, Counter[int]] = defaultdict(Counter)
        for each in self.run.deliveries("mailer"):
            found[each.outcome][int((each.at - self._started).total_seconds())] += 1
        return found


@pytest.fixture(autouse=True)
def without_a_log_of_failures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "tailrace.testing")


def average(counts: Counter[int], first: int, after: int) -> float:
    return sum(counts[second] for second in range(first, after)) / (after - first)


def test_with_half_of_a_thousand_messages_a_second_failing_successes_do_not_collapse() -> None:
    bank = Bank()
    traffic = Traffic(bank, throttle="10%")
    with traffic.run as shop:
        traffic.goes_on(5)
        bank.failing = 2
        traffic.goes_on(60)
        bank.failing = 0
        moved = len(shop.retrying("mailer"))
        traffic.goes_on(5)
        seconds = traffic.by_second()
        failed, succeeded = seconds[DeliveryOutcome.FAILED], seconds[DeliveryOutcome.SUCCEEDED]
        assert average(succeeded, 55, 65) >= 80
        assert average(failed, 55, 65) <= 110
        assert moved <= 1000 + 60 * 110, "without a throttle it would be 30,000"
        assert succeeded[69] >= RATE * 0.9
        assert shop.pending("mailer") == moved, "what waited in the topic was worked off"


def test_while_everything_fails_the_topic_stays_where_it_is_and_order_holds() -> None:
    bank = Bank()
    traffic = Traffic(bank)
    with traffic.run as shop:
        traffic.goes_on(3)
        bank.failing = 1
        traffic.goes_on(20)
        assert len(shop.retrying("mailer")) <= 1000 + 20 * 110
        bank.failing = 0
        traffic.goes_on(5)
        succeeded = traffic.by_second()[DeliveryOutcome.SUCCEEDED]
        assert succeeded[27] >= RATE * 0.9
        shop.advance("2h")
        assert shop.pending("mailer") == 0
        assert succeeded.total() <= traffic.pushed


def test_without_a_throttle_every_message_that_fails_moves() -> None:
    bank = Bank()
    traffic = Traffic(bank, throttle="off")
    with traffic.run as shop:
        bank.failing = 1
        traffic.goes_on(3)
        assert len(shop.retrying("mailer")) == traffic.pushed


def test_followers_that_were_never_called_count_for_nothing() -> None:
    with run(app_of(Bank(), retry=LATER)) as shop:
        shop.endpoint("mailer").fails(times=None, key="c7")
        topic = shop.hub.topic("orders")
        topic.push_many([("c7", number) for number in range(5000)])
        topic.push_many([(f"k{number}", number) for number in range(5000)])
        before = shop.now
        shop.advance("1ms", calls_max=20_000)
        outcomes = Counter(each.outcome for each in shop.deliveries("mailer"))
        assert outcomes == {DeliveryOutcome.FAILED: 1, DeliveryOutcome.SUCCEEDED: 5000}
        assert (shop.now - before).total_seconds() == 0.001
        assert len(shop.retrying("mailer")) == 5000


def test_messages_that_failed_are_retried_while_others_are_held_back() -> None:
    bank = Bank()
    traffic = Traffic(bank, retry=Retry(attempts=None, first="2s", max="2s"))
    with traffic.run as shop:
        bank.failing = 1
        traffic.goes_on(4)
        attempts = Counter(each.attempt for each in shop.deliveries("mailer"))
        assert attempts[2] >= 500, "the messages in RQ pass those that wait in the topic"


def test_a_restart_of_the_worker_forgets_nothing() -> None:
    bank = Bank()
    traffic = Traffic(bank)
    with traffic.run as shop:
        traffic.goes_on(4)
        bank.failing = 2
        traffic.goes_on(8)
        shop.restart_worker()
        traffic.goes_on(8)
        shop.kill_worker()
        traffic.goes_on(8)
        succeeded = traffic.by_second()[DeliveryOutcome.SUCCEEDED]
        assert average(succeeded, 16, 20) >= 80
        assert average(succeeded, 24, 28) >= 80


def test_status_and_explain_say_that_messages_are_held_back_and_why() -> None:
    bank = Bank()
    traffic = Traffic(bank)
    with traffic.run as shop:
        bank.failing = 1
        traffic.goes_on(3)
        clock = ManualClock(round(shop.now.timestamp() * 1000))
        what = [each.what for each in status(shop.hub, clock).problems]
        assert any("the throttle holds back" in each for each in what)
        assert any("those that fail are 10% of the usual calls" in each for each in what)
        (fact,) = (each for each in explain(shop.hub, "mailer").facts if each.name == "throttle")
        assert "the throttle holds back" in fact.what
        bank.failing = 0
        traffic.goes_on(11)
        clock = ManualClock(round(shop.now.timestamp() * 1000))
        what = [each.what for each in status(shop.hub, clock).problems]
        assert not any("the throttle" in each for each in what)
