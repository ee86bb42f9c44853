"""Messages that fail keep the order of their keys, and delay no other key."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import tailrace
from tailrace import Delivery, Retry
from tailrace.subscription.store.names import retry_queue
from tests.integration.subscribers import (
    NAME,
    QUICKLY,
    TOPIC,
    dead_letters,
    fails,
    make_hub,
    push,
    push_pairs,
    queued_twice,
)
from tests.support.counts import soaking
from tests.support.handler_log import HandlerLog, audit, calls_by_key
from tests.support.topics import all_messages
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

OTHER_KEYS_S = 1.0 if soaking() else 10.0
"""A test run shares its processor with others."""


class Desk:
    """A hub with a subscription, and a handler that logs its calls and fails as told."""

    def __init__(self, directory: Path) -> None:
        self.hub = tailrace.open(directory / "hub")
        self.log = HandlerLog(directory / "log")
        self.fails: Callable[[Delivery[int]], bool] = lambda delivery: False

    def handle(self, delivery: Delivery[int]) -> None:
        failing = self.fails(delivery)
        self.log.write(delivery, succeeded=not failing)
        if failing:
            raise ConnectionError("the warehouse does not answer")

    def done(self, count: int) -> bool:
        return len(self.log.succeeded()) >= count


@pytest.mark.timeout(120)
def test_ten_messages_of_a_failing_key_cost_one_call_while_fifty_keys_are_done(
    tmp_path: Path,
) -> None:
    make_hub(tmp_path / "hub", partitions=1, retry=Retry(3, first="1h", max="1h"))
    desk = Desk(tmp_path)
    desk.fails = lambda delivery: delivery.key == "k0"
    with desk.hub as hub:
        pairs = [("k0", number) for number in range(10)] + [(f"k{key}", 0) for key in range(1, 51)]
        receipts = push_pairs(hub, pairs)
        with hub.subscription(NAME).start(desk.handle, type=int):
            took_s = until(lambda: desk.done(50))
            until(lambda: len(all_messages(hub.topic(retry_queue(NAME)))) == 10)
    assert calls_by_key(desk.log)["k0"] == [0]
    assert audit(receipts, desk.log, (pair for pair in pairs if pair[0] == "k0")).well
    assert took_s < OTHER_KEYS_S


@pytest.mark.timeout(120)
def test_the_head_of_a_key_is_called_again_and_its_followers_after_it(tmp_path: Path) -> None:
    make_hub(tmp_path / "hub", partitions=1, retry=Retry(5, first="20ms", max="20ms"))
    desk = Desk(tmp_path)
    desk.fails = lambda delivery: delivery.value == 1 and delivery.attempt <= 3
    with desk.hub as hub:
        receipts = push_pairs(hub, [("k0", 1), ("k0", 2), ("k0", 3)])
        with hub.subscription(NAME).start(desk.handle, type=int):
            until(lambda: desk.done(3))
    assert calls_by_key(desk.log)["k0"] == [1, 1, 1, 1, 2, 3]
    assert audit(receipts, desk.log).well


@pytest.mark.timeout(120)
def test_one_failure_with_999_followers_at_a_delay_of_5_s_is_done_within_15_s(
    tmp_path: Path,
) -> None:
    make_hub(tmp_path / "hub", partitions=1, retry=Retry(3, first="5s", max="5s"))
    desk = Desk(tmp_path)
    desk.fails = lambda delivery: delivery.value == 0 and delivery.attempt == 1
    with desk.hub as hub:
        receipts = push(hub, 1, 0, 1000)
        with hub.subscription(NAME).start(desk.handle, type=int):
            took_s = until(lambda: desk.done(1000))
    assert audit(receipts, desk.log).well
    assert calls_by_key(desk.log)["k0"] == [0, *range(1000)]
    assert took_s < 15


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", ["block", "continue"])
def test_attempts_are_used_up_also_if_the_worker_is_restarted_between_any_two(
    tmp_path: Path, policy: str
) -> None:
    make_hub(tmp_path / "hub", partitions=1, retry=QUICKLY, on_dead_letter=policy)
    desk = Desk(tmp_path)
    desk.fails = lambda delivery: delivery.value == 1
    with desk.hub as hub:
        subscription = hub.subscription(NAME)
        receipts = push_pairs(hub, [("k0", 1), ("k0", 2), ("k1", 3)])
        for attempt in (1, 2, 3):
            with subscription.start(desk.handle, type=int, concurrency=1):
                until(lambda attempt=attempt: attempt in attempts_of(desk, 1))  # type: ignore[misc]
        expected = 2 if policy == "block" else 1
        with subscription.start(desk.handle, type=int):
            until(lambda: len(dead_letters(hub)) == expected)
            until(lambda: desk.done(3 - expected))
        dead = dead_letters(hub)
    assert attempts_of(desk, 1) == [1, 2, 3]
    assert set(dead) == ({("k0", 1), ("k0", 2)} if policy == "block" else {("k0", 1)})
    assert dead["k0", 1] == "ConnectionError: the warehouse does not answer"
    assert attempts_of(desk, 2) == ([] if policy == "block" else [1])
    assert audit(receipts, desk.log, dead).well


def attempts_of(desk: Desk, number: int) -> list[int]:
    return [line.attempt for line in desk.log.lines() if line.number == number]


@pytest.mark.timeout(180)
def test_a_topic_that_is_scaled_under_failures_keeps_the_order_of_every_key(
    tmp_path: Path,
) -> None:
    make_hub(tmp_path / "hub", shards=4, on_dead_letter="continue")
    desk = Desk(tmp_path)
    desk.fails = fails
    with desk.hub as hub:
        receipts = push(hub, 20, 1, 15)
        with hub.subscription(NAME).start(desk.handle, type=int):
            until(lambda: any(not line.succeeded for line in desk.log.lines()))
            hub.topic(TOPIC, int).scale(12)
            receipts |= push(hub, 20, 15, 40)
            until(lambda: len(desk.log.succeeded()) + len(dead_letters(hub)) == len(receipts))
        dead = dead_letters(hub)
        assert queued_twice(hub) == []
    assert {number for _, number in dead} == {23}
    assert audit(receipts, desk.log, dead).well
    assert any(receipt.storage == 1 for receipt in receipts.values())


@pytest.mark.timeout(120)
def test_a_healthy_handler_empties_the_retry_queue_while_messages_keep_coming(
    tmp_path: Path,
) -> None:
    make_hub(tmp_path / "hub", retry=Retry(None, first="20ms", max="40ms"))
    desk, healthy = Desk(tmp_path), threading.Event()
    desk.fails = lambda delivery: not healthy.is_set()
    with desk.hub as hub:
        receipts = push(hub, 20, 0, 10)
        with hub.subscription(NAME).start(desk.handle, type=int) as worker:
            until(lambda: worker.stats().failed >= 40)
            healthy.set()
            for number in range(10, 40):
                receipts |= push(hub, 20, number, number + 1)
                time.sleep(0.01)
            until(lambda: desk.done(len(receipts)))
            queue = hub.topic(retry_queue(NAME))
            moved = len(all_messages(queue))
            receipts |= push(hub, 20, 40, 50)
            until(lambda: desk.done(len(receipts)))
            assert len(all_messages(queue)) == moved, "RQ grows although nothing fails"
    assert audit(receipts, desk.log).well


@pytest.mark.timeout(120)
def test_keys_share_the_slots_of_a_worker_with_a_key_that_has_most_messages(
    tmp_path: Path,
) -> None:
    make_hub(tmp_path / "hub", partitions=1)
    desk = Desk(tmp_path)
    order: defaultdict[str, list[int]] = defaultdict(list)
    with desk.hub as hub:
        pairs = [("hot", number) for number in range(900)] + [(f"k{key}", 0) for key in range(100)]
        hub.topic(TOPIC, int).push_many(pairs)

        def handle(delivery: Delivery[int]) -> None:
            order[str(delivery.key)].append(len(order["hot"]))
            time.sleep(0.001)

        with hub.subscription(NAME).start(handle, type=int, concurrency=4):
            until(lambda: len(order) >= 101)
            assert len(order["hot"]) < 600, "the other keys waited for the hot one"
