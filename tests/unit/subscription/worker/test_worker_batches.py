"""A handler that takes several messages at once: consecutive ones of one partition."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace import Delivery, Error, InvalidValue, Reject, Retry, UnknownTopic
from tests.support.topics import all_messages
from tests.support.waiting import until
from tests.support.workers import Office

Batch = list[Delivery[Any]]


class Batches:
    """A handler of batches that records them, and raises for some values."""

    def __init__(self, *poison: Any) -> None:
        self.batches: list[list[Any]] = []
        self.poison = set(poison)
        self._mutex = threading.Lock()

    def __call__(self, batch: Batch) -> None:
        values = [each.value for each in batch]
        with self._mutex:
            self.batches.append(values)
        if self.poison.intersection(values):
            raise Reject("poison")

    @property
    def succeeded(self) -> list[Any]:
        return [v for batch in self.batches if not self.poison.intersection(batch) for v in batch]


def test_a_batch_has_the_messages_of_one_partition_in_their_order() -> None:
    office, seen = Office(partitions=2), list[list[Delivery[int]]]()
    office.topic.push_many([(f"k{number % 3}", number) for number in range(200)])
    with office.subscription.start(seen.append, batch=True, batch_size=50):
        until(lambda: sum(map(len, seen)) == 200)
    for batch in seen:
        assert len({each.partition for each in batch}) == 1
        offsets = [each.offset for each in batch]
        assert offsets == list(range(offsets[0], offsets[0] + len(batch)))
    assert max(map(len, seen)) > 3, "several messages of a key"
    for key in range(3):
        values = [each.value for batch in seen for each in batch if each.value % 3 == key]
        assert values == list(range(key, 200, 3))


def test_batches_of_one_partition_are_handled_one_after_the_other() -> None:
    """And those of two partitions at the same time."""
    office, mutex = Office(partitions=2), threading.Lock()
    now: set[int] = set()
    together, overlaps = list[int](), list[int]()
    meet = threading.Barrier(2)

    def handle(batch: Batch) -> None:
        partition = batch[0].partition
        with mutex:
            overlaps.extend(now & {partition})
            now.add(partition)
        if batch[0].offset == 0:
            meet.wait(30)
        with mutex:
            together.append(len(now))
            now.remove(partition)

    office.topic.push_many([(f"k{number}", number) for number in range(100)])
    with office.subscription.start(handle, batch=True, batch_size=10, concurrency=4) as worker:
        until(lambda: worker.stats().succeeded == 100)
    assert overlaps == []
    assert max(together) == 2


def test_messages_behind_a_failed_one_of_their_key_are_in_no_batch_before_it() -> None:
    office, done = Office(retry=Retry(5, first="100ms", max="100ms")), list[int]()
    failures = iter([True, True])

    def handle(batch: Batch) -> None:
        if any(each.value == 0 for each in batch) and next(failures, False):
            raise ValueError("no stock")
        done.extend(each.value for each in batch)

    office.topic.push_many([("a" if number % 2 == 0 else "b", number) for number in range(40)])
    with office.subscription.start(handle, batch=True, batch_size=10):
        until(lambda: len(done) == 40)
        office.topic.push_many([("a", 40), ("b", 41)])
        until(lambda: len(done) == 42)
    assert [value for value in done if value % 2 == 0] == list(range(0, 42, 2))
    assert [value for value in done if value % 2 == 1] == list(range(1, 42, 2))


def test_a_batch_pushes_many_messages_in_the_order_of_its_pushes() -> None:
    office = Office()
    office.hub.create_topic("done", partitions=1)

    def handle(batch: Batch) -> None:
        tx = batch[0].tx
        tx.push("done", -1)
        tx.push_many("done", [(each.key, each.value) for each in batch])
        batch[-1].tx.push("done", -2)

    office.topic.push_many([("a", number) for number in range(20)])
    with office.subscription.start(
        handle, batch=True, guarantee="exactly-once", concurrency=1
    ) as worker:
        until(lambda: worker.stats().succeeded == 20)
    done = [each.value for each in all_messages(office.hub.topic("done"))]
    assert [value for value in done if value >= 0] == list(range(20))
    assert done[0] == -1
    assert done[-1] == -2


def test_push_many_refuses_what_is_no_pair_and_a_topic_that_does_not_exist() -> None:
    office, errors = Office(), list[Exception]()
    office.hub.create_topic("done", partitions=1)

    def handle(batch: Batch) -> None:
        for topic, messages in (("done", [1]), ("nowhere", [("a", 1)])):
            try:
                batch[0].tx.push_many(topic, messages)
            except Error as error:
                errors.append(error)

    office.topic.push_many([("a", 1), ("a", 2)])
    with office.subscription.start(handle, batch=True, guarantee="exactly-once") as worker:
        until(lambda: worker.stats().succeeded == 2)
    assert [type(error) for error in errors] == [InvalidValue, UnknownTopic]
    assert all_messages(office.hub.topic("done")) == []


def test_a_batch_that_fails_is_split_and_only_the_poison_is_a_dead_letter() -> None:
    office, handle = Office(), Batches("p")
    office.topic.push_many([(f"k{number}", number) for number in range(5)] + [("p", "p")])
    with office.subscription.start(handle, batch=True, concurrency=1) as worker:
        until(lambda: len(office.subscription.dead_letters) == 1)
        until(lambda: len(handle.succeeded) == 5)
        assert worker.stats().succeeded == 5
    whole = [batch for batch in handle.batches if len(batch) > 1]
    assert len(whole) == 1
    assert sorted(map(str, whole[0])) == ["0", "1", "2", "3", "4", "p"]
    assert sorted(handle.succeeded) == list(range(5)), "each once more by itself"
    (letter,) = office.subscription.dead_letters.list()
    assert letter.attempts == 1


def test_the_outputs_of_a_batch_that_fails_are_dropped() -> None:
    office = Office()
    office.hub.create_topic("done", partitions=1)

    def handle(batch: Batch) -> None:
        for each in batch:
            each.tx.push("done", each.value)
        if any(each.value == 3 and each.attempt == 1 for each in batch):
            raise ValueError

    office.topic.push_many([(f"k{number}", number) for number in range(6)])
    with office.subscription.start(handle, batch=True, guarantee="exactly-once"):
        until(lambda: len(all_messages(office.hub.topic("done"))) == 6)
    assert sorted(each.value for each in all_messages(office.hub.topic("done"))) == list(range(6))


def test_messages_that_the_filter_leaves_out_are_in_no_batch() -> None:
    office, handle = Office(), Batches()
    office.topic.push_many([(f"k{number}", number) for number in range(20)])
    with office.subscription.start(
        handle, batch=True, filter=lambda message: message.value % 2 == 0
    ) as worker:
        until(lambda: worker.stats().filtered == 10 and len(handle.succeeded) == 10)
    assert sorted(handle.succeeded) == list(range(0, 20, 2))


def test_a_coroutine_function_takes_batches() -> None:
    office, handle = Office(), Batches("p")

    async def handle_async(batch: Batch) -> None:
        handle(batch)

    office.topic.push_many([(f"k{number}", number) for number in range(20)] + [("p", "p")])
    with office.subscription.start(handle_async, batch=True, batch_size=7):
        until(lambda: len(office.subscription.dead_letters) == 1)
        until(lambda: len(handle.succeeded) == 20)
    assert sorted(handle.succeeded) == list(range(20))


def test_a_batch_that_fails_at_most_once_is_called_once() -> None:
    office, handle = Office(), Batches(3)
    office.topic.push_many([(f"k{number}", number) for number in range(10)])
    with office.subscription.start(handle, batch=True, guarantee="at-most-once"):
        until(lambda: sum(map(len, handle.batches)) >= 10)
        office.topic.push(10, key="later")
        until(lambda: [10] in handle.batches)
    called = [value for batch in handle.batches for value in batch]
    assert sorted(called) == list(range(11))
    assert len(office.subscription.dead_letters) == 0


def test_a_transaction_needs_a_handler_that_declares_exactly_once() -> None:
    office, errors = Office(), list[str]()

    def handle(delivery: Delivery[Any]) -> None:
        with pytest.raises(Error, match="exactly-once") as raised:
            delivery.tx.push("orders", 1)
        errors.append(str(raised.value))

    office.topic.push(1)
    with office.subscription.start(handle):
        until(lambda: errors)


def test_a_call_that_timed_out_pushes_nothing_late() -> None:
    office, late, go = Office(), list[str](), threading.Event()
    office.hub.create_topic("done", partitions=1)

    def handle(delivery: Delivery[Any]) -> None:
        if delivery.attempt == 1:
            delivery.tx.push("done", "early")
            go.wait(30)
            with pytest.raises(Error, match="the call has ended"):
                delivery.tx.push("done", "late")
            late.append("refused")
        else:
            delivery.tx.push("done", "second")

    office.topic.push(1, key="a")
    with office.subscription.start(handle, timeout="100ms", guarantee="exactly-once") as worker:
        until(lambda: worker.stats().failed == 1)
        go.set()
        until(lambda: late)
        until(lambda: worker.stats().succeeded == 1)
    assert [each.value for each in all_messages(office.hub.topic("done"))] == ["second"]
