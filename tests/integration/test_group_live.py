"""Running consumers: new topics, seeks, deletions, and messages that always fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import DeliveryFailed, UnknownGroup, UnknownTopic
from tailrace.group.protocol.times import Times
from tests.support.processes import Child, Report

pytestmark = pytest.mark.part("groups")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


def _consume(report: Report, directory: Path, topics: str) -> None:
    """Consume, and report all values and the error that ends the loop.

    A leader here reads its units when it is notified of a change, and at no interval.
    """
    by_lease = Times.of
    setattr(Times, "of", lambda lease: replace(by_lease(lease), refresh_s=3600.0))  # noqa: B010
    group = None if topics.startswith("$") else "billing"
    with tailrace.open(directory) as hub, hub.tail(topics, int, group=group) as consumer:
        report("joined")
        try:
            for delivery in consumer:
                report(delivery.value)
        except tailrace.Error as error:
            report(type(error).__name__)


def _reports(child: Child, count: int) -> list[object]:
    return [child.next_report() for _ in range(count)]


def _consumer(tmp_path: Path, topics: str) -> Child:
    child = Child(_consume, tmp_path / "hub", topics)
    assert child.next_report() == "joined"
    return child


def test_a_group_over_a_filter_consumes_a_topic_that_is_created_later(
    hub: tailrace.Hub, tmp_path: Path
) -> None:
    hub.create_topic("orders.eu", int, partitions=2).push(1)
    child = _consumer(tmp_path, "orders.*")
    assert child.next_report() == 1
    created_at = time.monotonic()
    hub.create_topic("orders.us", int, partitions=2).push(2)
    assert child.next_report() == 2
    taken_s = time.monotonic() - created_at
    print(f"consumed {taken_s * 1000:.0f} ms after the topic was created")
    list(child.kill())


def test_consumers_of_a_deleted_topic_get_an_error_and_those_of_a_filter_continue(
    hub: tailrace.Hub, tmp_path: Path
) -> None:
    hub.create_topic("orders.eu", int, partitions=2).push(1)
    us = hub.create_topic("orders.us", int, partitions=2)
    others = _consumer(tmp_path, "orders.*")
    assert others.next_report() == 1
    children = [Child(_consume, tmp_path / "hub", "$shared/eu/orders.eu") for _ in range(2)]
    assert [child.next_report() for child in children] == ["joined"] * 2
    hub.delete_topic("orders.eu")
    for child in children:
        while (report := child.next_report()) == 1:
            pass
        assert report == UnknownTopic.__name__
    us.push(2)
    assert others.next_report() == 2
    for child in (others, *children):
        list(child.kill())


def test_a_consumer_that_always_nacks_a_message_gets_an_error_and_other_keys_continue(
    hub: tailrace.Hub,
) -> None:
    topic = hub.create_topic("orders", int, partitions=1)
    bad = topic.push(0, key="bad")
    topic.push_many([("good", 1), ("bad", 2), ("good", 3), ("other", 4)])
    taken: list[int] = []

    def take(consumer: tailrace.Consumer[int]) -> None:
        for delivery in consumer:
            taken.append(delivery.value)
            if delivery.key == "bad":
                delivery.nack()
            else:
                delivery.ack()

    with topic.tail(group="billing", ack="manual", attempts=3, idle_timeout="1s") as consumer:
        with pytest.raises(DeliveryFailed) as failed:
            take(consumer)
        take(consumer)
    assert sorted(taken) == [0, 0, 0, 1, 3, 4]
    error = failed.value
    assert (error.position, error.key, error.attempts) == (bad.id, "bad", 3)
    [lag] = hub.group("billing").lag()
    assert lag.lag == 2


def test_a_loop_until_the_end_ends_at_the_end_offsets_of_its_start(hub: tailrace.Hub) -> None:
    topic = hub.create_topic("orders", int, partitions=4)
    topic.push_many([(f"k{number}", number) for number in range(100)])
    topic.scale(8)
    topic.push_many([(f"k{number}", number) for number in range(100, 200)])
    taken = []
    with topic.tail(group="billing", until="end") as consumer:
        for delivery in consumer:
            taken.append(delivery.value)
            topic.push(1000 + delivery.value, key=delivery.key)
    assert sorted(taken) == list(range(200))


def test_a_seek_moves_running_consumers_at_once(hub: tailrace.Hub, tmp_path: Path) -> None:
    topic = hub.create_topic("orders", int, partitions=1)
    topic.push_many([("k", number) for number in range(100)])
    child = _consumer(tmp_path, "orders")
    assert _reports(child, 100) == list(range(100))
    sought_at = time.monotonic()
    assert hub.group("billing").seek("orders/0.0@40") == {"orders/0.0": 40}
    assert _reports(child, 60) == list(range(40, 100))
    taken_s = time.monotonic() - sought_at
    print(f"consumed again {taken_s * 1000:.0f} ms after the seek")
    topic.push(100, key="k")
    assert child.next_report() == 100
    list(child.kill())


def test_consumers_of_a_deleted_group_get_an_error(hub: tailrace.Hub, tmp_path: Path) -> None:
    topic = hub.create_topic("orders", int, partitions=1)
    topic.push(0, key="k")
    child = _consumer(tmp_path, "orders")
    assert child.next_report() == 0
    hub.group("billing").delete()
    assert child.next_report() == UnknownGroup.__name__
    assert hub.groups() == []
    list(child.kill())
