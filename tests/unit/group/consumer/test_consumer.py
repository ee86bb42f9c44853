"""A consumer of a group: its loops, its block, and its acknowledgements."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import BackendUnavailable, Error
from tailrace.group.session.session import Session
from tailrace.group.store.definition import consumer_name
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push


def test_every_message_is_delivered_once_in_order_per_key(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 200)
    by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    with consume(topic, runtime, until="end") as consumer:
        for delivery in consumer:
            by_key[delivery.key].append(delivery.value)
    assert {key: list(range(n, 200, 5)) for n, key in enumerate(sorted(map(str, by_key)))} == by_key
    assert unacked_values(topic) == []


def test_leaving_the_block_acknowledges_the_message_in_flight(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as consumer:
        for delivery in consumer:
            if delivery.value == 3:
                break
    assert 3 not in unacked_values(topic)


def test_leaving_the_block_by_an_exception_does_not_acknowledge_it(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    done: list[int] = []

    def consume_some() -> None:
        with consume(topic, runtime) as consumer:
            for delivery in consumer:
                if delivery.value == 3:
                    raise ZeroDivisionError
                done.append(delivery.value)

    with pytest.raises(ZeroDivisionError):
        consume_some()
    assert unacked_values(topic) == sorted(set(range(10)) - set(done))
    assert 3 in unacked_values(topic)


def test_a_message_in_flight_at_an_exception_is_marked_as_redelivered(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 4)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime) as consumer:
        raise ZeroDivisionError(next(iter(consumer)))
    with consume(topic, FakeRuntime(backend), until="end") as consumer:
        assert [delivery.redelivered for delivery in consumer] == [True, False, False, False]


def test_iterating_again_after_a_break_continues(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 10)
    got = []
    with consume(topic, runtime, until="end") as consumer:
        for delivery in consumer:
            got.append(delivery.value)
            break
        got += [delivery.value for delivery in consumer]
    assert sorted(got) == list(range(10))


def test_a_loop_without_a_block_leaves_the_group_at_its_end(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    assert len(list(consume(topic, runtime, limit=10))) == 10
    assert runtime.left
    assert unacked_values(topic) == []


def test_breaking_a_loop_without_a_block_leaves_the_group_and_nacks_the_messages_in_flight(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    in_flight = None
    for number, delivery in enumerate(consume(topic, runtime)):
        in_flight = delivery.value
        if number == 3:
            break
    assert runtime.left
    assert in_flight in unacked_values(topic)
    assert len(unacked_values(topic)) == 7


def test_two_iterations_of_one_thread_share_the_deliveries(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10, keys=1)
    with consume(topic, runtime, until="end") as consumer:
        one, other = iter(consumer), iter(consumer)
        got = [next(each).value for _ in range(5) for each in (one, other)]
    assert got == list(range(10))
    assert unacked_values(topic) == []


def test_a_second_thread_that_iterates_is_refused(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 3, keys=1)
    with ThreadPoolExecutor(1) as pool, consume(topic, runtime, until="end") as consumer:
        for delivery in consumer:
            with pytest.raises(Error, match="another thread or task iterates this consumer"):
                pool.submit(lambda: next(iter(consumer))).result()
            assert delivery.value in unacked_values(topic)
        assert pool.submit(lambda: list(consumer)).result() == []


def test_a_start_that_failed_can_be_tried_again(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 3)
    failing = [True]

    def join(session: Session) -> FakeRuntime:
        if failing.pop() if failing else False:
            raise BackendUnavailable("it does not answer")
        return runtime.join(session)

    consumer = consume(topic, runtime, join=join, until="end")
    with pytest.raises(BackendUnavailable), consumer:
        pass
    with consumer:
        assert len(list(consumer)) == 3


def test_stats_report_partitions_and_deliveries_of_a_consumer(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10, keys=10)
    with consume(topic, runtime, until="end", ack="manual", id="worker-1") as consumer:
        held = [delivery for _, delivery in zip(range(3), consumer, strict=False)]
        held[0].ack()
        held[1].nack()
        stats = consumer.stats()
        assert consumer.id.startswith("worker-1.")
        assert consumer.is_acking
    assert len(stats.partitions) == 3
    assert (stats.delivered, stats.acknowledged, stats.nacked, stats.in_flight) == (3, 1, 1, 1)


def test_a_consumer_that_left_refuses_to_iterate(topic: Topic[Any], runtime: FakeRuntime) -> None:
    with consume(topic, runtime) as consumer:
        pass
    with pytest.raises(Error, match="has left its group"):
        next(iter(consumer))


def test_progress_covers_gaps_so_that_marks_reach_the_ends(
    topic: Topic[Any], runtime: FakeRuntime, backend: Backend
) -> None:
    push(topic, 30)
    with consume(topic, runtime, until="end") as consumer:
        for _ in consumer:
            pass
    for number, end in enumerate(topic.storage_topics[0].ends):
        where = Partition("orders", 0, number)
        assert Progress.load(backend.table, consumer_name("billing"), where).mark == end


def test_a_consumer_of_many_partitions_leaves_with_all_of_them_durable(backend: Backend) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=40)
    push(topic, 400, keys=400)
    with consume(topic, FakeRuntime(backend), limit=400) as consumer:
        assert len(list(consumer)) == 400
    assert unacked_values(topic) == []
