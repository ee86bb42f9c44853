"""A consumer of a group: its loops, its block, and what it acknowledges."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import BackendUnavailable, Error
from tailrace.group.definition import consumer_name
from tailrace.group.session import Session
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import left, push
from tests.unit.group.single_owner import SingleOwner, consume


def test_every_message_comes_once_in_order_per_key(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 200)
    by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            by_key[delivery.key].append(delivery.value)
    assert {key: list(range(n, 200, 5)) for n, key in enumerate(sorted(map(str, by_key)))} == by_key
    assert left(topic) == []


def test_leaving_the_block_acknowledges_the_one_in_hand(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    with consume(topic, runtime) as deliveries:
        for delivery in deliveries:
            if delivery.value == 3:
                break
    assert 3 not in left(topic)


def test_leaving_the_block_by_an_exception_does_not(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    done: list[int] = []

    def consume_some() -> None:
        with consume(topic, runtime) as deliveries:
            for delivery in deliveries:
                if delivery.value == 3:
                    raise ZeroDivisionError
                done.append(delivery.value)

    with pytest.raises(ZeroDivisionError):
        consume_some()
    assert left(topic) == sorted(set(range(10)) - set(done))
    assert 3 in left(topic)


def test_what_was_in_hand_at_an_exception_is_marked_when_it_comes_again(
    backend: Backend, runtime: SingleOwner
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 4)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime) as deliveries:
        raise ZeroDivisionError(next(iter(deliveries)))
    with consume(topic, SingleOwner(backend), until="end") as deliveries:
        assert [delivery.redelivered for delivery in deliveries] == [True, False, False, False]


def test_iterating_again_after_a_break_goes_on(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10)
    got = []
    with consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            got.append(delivery.value)
            break
        got += [delivery.value for delivery in deliveries]
    assert sorted(got) == list(range(10))


def test_a_loop_without_a_block_leaves_the_group_at_its_end(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    assert len(list(consume(topic, runtime, limit=10))) == 10
    assert runtime.left
    assert left(topic) == []


def test_a_loop_without_a_block_that_is_broken_off_leaves_and_gives_back_what_it_had(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10)
    in_hand = None
    for number, delivery in enumerate(consume(topic, runtime)):
        in_hand = delivery.value
        if number == 3:
            break
    assert runtime.left
    assert in_hand in left(topic)
    assert len(left(topic)) == 7


def test_two_iterations_of_one_thread_share_what_comes(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 10, keys=1)
    with consume(topic, runtime, until="end") as deliveries:
        one, other = iter(deliveries), iter(deliveries)
        got = [next(each).value for _ in range(5) for each in (one, other)]
    assert got == list(range(10))
    assert left(topic) == []


def test_a_second_thread_that_iterates_is_refused(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 3, keys=1)
    with ThreadPoolExecutor(1) as pool, consume(topic, runtime, until="end") as deliveries:
        for delivery in deliveries:
            with pytest.raises(Error, match="another thread or task iterates this consumer"):
                pool.submit(lambda: next(iter(deliveries))).result()
            assert delivery.value in left(topic)
        assert pool.submit(lambda: list(deliveries)).result() == []


def test_a_start_that_failed_can_be_tried_again(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 3)
    failing = [True]

    def join(session: Session) -> SingleOwner:
        if failing.pop() if failing else False:
            raise BackendUnavailable("it does not answer")
        return runtime.join(session)

    deliveries = consume(topic, runtime, join=join, until="end")
    with pytest.raises(BackendUnavailable), deliveries:
        pass
    with deliveries:
        assert len(list(deliveries)) == 3


def test_stats_tell_what_a_consumer_has_and_did(topic: Topic[Any], runtime: SingleOwner) -> None:
    push(topic, 10, keys=10)
    with consume(topic, runtime, until="end", ack="manual", id="worker-1") as deliveries:
        held = [delivery for _, delivery in zip(range(3), deliveries, strict=False)]
        held[0].ack()
        held[1].nack()
        stats = deliveries.stats()
        assert deliveries.id.startswith("worker-1.")
        assert deliveries.is_acking
    assert len(stats.partitions) == 3
    assert (stats.delivered, stats.acknowledged, stats.nacked, stats.in_hand) == (3, 1, 1, 1)


def test_a_consumer_that_left_says_so(topic: Topic[Any], runtime: SingleOwner) -> None:
    with consume(topic, runtime) as deliveries:
        pass
    with pytest.raises(Error, match="has left its group"):
        next(iter(deliveries))


def test_progress_covers_gaps_so_that_marks_reach_the_ends(
    topic: Topic[Any], runtime: SingleOwner, backend: Backend
) -> None:
    push(topic, 30)
    with consume(topic, runtime, until="end") as deliveries:
        for _ in deliveries:
            pass
    for number, end in enumerate(topic.storage_topics[0].ends):
        where = Partition("orders", 0, number)
        assert Progress.load(backend.table, consumer_name("billing"), where).mark == end


def test_a_consumer_of_many_partitions_leaves_with_all_of_them_durable(backend: Backend) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=40)
    push(topic, 400, keys=400)
    with consume(topic, SingleOwner(backend), limit=400) as deliveries:
        assert len(list(deliveries)) == 400
    assert left(topic) == []
