"""A worker calls its handler with the messages of its shards, and stores what follows."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tailrace import Delivery, Error, InvalidValue, Message, Reject, Retry, RetryLater
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_worker_handles_every_message() -> None:
    office, calls = Office(partitions=4), Calls()
    office.topic.push_many([(f"c{number % 7}", number) for number in range(500)])
    with office.subscription.start(calls):
        calls.wait_done(500)
    assert sorted(calls.done) == list(range(500))
    for key in range(7):
        assert [value for value in calls.done if value % 7 == key] == list(range(key, 500, 7))


def test_what_was_handled_is_not_handled_again() -> None:
    office, calls = Office(), Calls()
    office.topic.push_many([("a", 1), ("b", 2)])
    with office.subscription.start(calls):
        calls.wait_done(2)
    office.topic.push(3, key="a")
    with office.subscription.start(calls):
        calls.wait_done(3)
    assert calls.done == [1, 2, 3]


def test_a_failed_message_is_retried_before_its_followers() -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=2)
    office.topic.push_many([("a", "a1"), ("a", "a2"), ("b", "b1")])
    with office.subscription.start(calls):
        calls.wait_done(3)
    assert [call for call in calls.calls if call[0] != "b1"] == [
        ("a1", 1),
        ("a1", 2),
        ("a1", 3),
        ("a2", 1),
    ]


def test_a_retried_message_is_as_it_was_pushed() -> None:
    office = Office()
    seen: list[tuple[Any, ...]] = []

    def handle(delivery: Delivery[Any]) -> None:
        seen.append(
            (delivery.id, delivery.key, delivery.value, delivery.headers, delivery.timestamp)
        )
        if delivery.attempt == 1:
            raise RuntimeError

    receipt = office.topic.push({"total": 5}, key="a", headers={"country": "IN"})
    with office.subscription.start(handle):
        until(lambda: len(seen) == 2)
    assert seen[0] == seen[1]
    assert seen[0][:4] == (receipt.id, "a", {"total": 5}, {"country": b"IN"})


@pytest.mark.parametrize("error", [Reject("negative"), Reject()])
def test_a_rejected_message_is_a_dead_letter_at_once(error: Reject) -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=9, error=error)
    office.topic.push_many([("a", "a1"), ("b", "b1")])
    with office.subscription.start(calls) as worker:
        until(lambda: worker.stats().rejected == 1)
        calls.wait_done(1)
    assert calls.calls.count(("a1", 1)) == 1
    assert len(calls.calls) == 2


def test_a_payload_that_cannot_be_decoded_is_rejected() -> None:
    office = Office()
    seen: list[str] = []

    def handle(delivery: Delivery[Any]) -> None:
        seen.append(delivery.id)
        print(delivery.value)

    office.topic.push("not a number", key="a")
    with office.subscription.start(handle, type=int) as worker:
        until(lambda: worker.stats().rejected == 1)
    assert len(seen) == 1


def test_a_handler_sets_the_time_of_its_next_attempt() -> None:
    office = Office(retry=Retry(attempts=3, first="1h", max="1h"))
    calls = Calls()
    calls.fails("a1", times=1, error=RetryLater("10ms"))
    office.topic.push("a1", key="a")
    with office.subscription.start(calls):
        calls.wait_done(1)
    assert calls.calls == [("a1", 1), ("a1", 2)]


def test_a_coroutine_function_is_awaited() -> None:
    office = Office(partitions=2)
    done: list[int] = []

    async def handle(delivery: Delivery[Any]) -> None:
        if delivery.value == 3 and delivery.attempt == 1:
            raise RuntimeError
        done.append(delivery.value)

    office.topic.push_many([("a", number) for number in range(10)])
    with office.subscription.start(handle):
        until(lambda: len(done) == 10)
    assert done == list(range(10))


def test_at_most_the_concurrency_is_in_flight() -> None:
    office, most, mutex = Office(partitions=4), [0, 0], threading.Lock()
    done: list[int] = []

    def handle(delivery: Delivery[Any]) -> None:
        with mutex:
            most[0] += 1
            most[1] = max(most)
        threading.Event().wait(0.001)
        with mutex:
            most[0] -= 1
            done.append(delivery.value)

    office.topic.push_many([(f"c{number}", number) for number in range(200)])
    with office.subscription.start(handle, concurrency=3):
        until(lambda: len(done) == 200)
    assert most[1] == 3


def shards_of(worker: Any) -> list[Any]:
    return list(worker._session.machine.shards.values())


def test_a_paused_subscription_calls_nothing_until_it_is_resumed() -> None:
    office, calls = Office(), Calls()
    office.subscription.pause("deploy")
    office.topic.push("a1", key="a")
    with office.subscription.start(calls) as worker:
        until(lambda: worker.stats().shards == ("0.0",))
        office.subscription.resume()
        calls.wait_done(1)
        office.subscription.pause("again")
        until(lambda: all(each.machine.paused for each in shards_of(worker)))
        office.topic.push("a2", key="a")
        assert not worker.wait(0.1)
        assert calls.done == ["a1"]
        office.subscription.resume()
        calls.wait_done(2)


def test_two_workers_share_the_shards() -> None:
    office, calls = Office(partitions=4), Calls()
    with office.subscription.start(calls) as one, office.subscription.start(calls) as two:
        until(lambda: len(one.stats().shards) == 2 and len(two.stats().shards) == 2)
        office.topic.push_many([(f"c{number}", number) for number in range(100)])
        calls.wait_done(100)
    assert sorted(calls.done) == list(range(100))


def test_a_delivery_cannot_be_acknowledged_by_its_handler() -> None:
    office = Office()
    errors: list[str] = []

    def handle(delivery: Delivery[Any]) -> None:
        for method in (delivery.ack, delivery.nack, delivery.reject):
            with pytest.raises(Error, match="the outcome of the handler decides") as raised:
                method()
            errors.append(str(raised.value))

    office.topic.push("a1", key="a")
    with office.subscription.start(handle):
        until(lambda: len(errors) == 3)


async def _later(message: Message[Any]) -> bool:
    return False


class _AsyncFilter:
    async def __call__(self, message: Message[Any]) -> bool:
        return False


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"timeout": "0s"},
        {"filter": "x"},
        {"filter": _later},
        {"filter": _AsyncFilter()},
    ],
)
def test_options_that_are_not_valid_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Office().subscription.start(Calls(), **options)


def test_a_handler_that_cannot_be_called_is_refused() -> None:
    handler: Any = 5
    with pytest.raises(InvalidValue, match="handler"):
        Office().subscription.start(handler)


def test_threads_read_the_shards_of_a_worker_only_with_its_lock() -> None:
    office, calls = Office(partitions=2), Calls()
    with office.subscription.start(calls) as worker:
        until(lambda: len(worker.stats().shards) == 2)
        session: Any = worker._session

        class Guarded(dict[str, Any]):
            def values(self) -> Any:
                assert session.changed._is_owned()
                return super().values()

        with session.changed:
            session.machine.shards = Guarded(session.machine.shards)
        office.topic.push_many([("a", "a1"), ("b", "b1")])
        until(lambda: len(calls.done) == 2 or session._error is not None)
        assert not worker.wait(0)
