"""A worker calls its handler with the messages of its shards, and stores what follows."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tailrace import (
    Delivery,
    DiskFull,
    Error,
    HubClosed,
    InvalidValue,
    Message,
    Reject,
    Retry,
    RetryLater,
    UnknownSubscription,
)
from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import OutcomeKind
from tailrace.subscription.store.names import retry_queue
from tests.support.faulty_backend import FaultyBackend
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


def test_a_message_that_becomes_a_dead_letter_is_logged_and_its_followers_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=9, error=Reject("negative"))
    receipts = office.topic.push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls):
        until(lambda: len(office.subscription.dead_letters) == 2)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    where = receipts[0].id
    assert logged == [
        f"mailer: {where} is a dead letter now: Reject: negative; tailrace explain {where}"
    ]


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


def test_a_coroutine_that_takes_too_long_has_failed() -> None:
    office = Office()
    attempts: list[int] = []

    async def handle(delivery: Delivery[Any]) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            await asyncio_forever()

    office.topic.push("a1", key="a")
    with office.subscription.start(handle, timeout="50ms") as worker:
        until(lambda: worker.stats().succeeded == 1)
    assert attempts == [1, 2]


async def asyncio_forever() -> None:
    import asyncio

    await asyncio.Event().wait()


def test_a_call_that_takes_too_long_frees_its_slot_for_other_keys() -> None:
    office, calls, release = Office(), Calls(), threading.Event()
    calls.when("a1", lambda delivery: release.wait(30) if delivery.attempt == 1 else None)
    office.topic.push_many([("a", "a1"), ("b", "b1")])
    with office.subscription.start(calls, concurrency=1, timeout="50ms"):
        until(lambda: "b1" in calls.done)
        assert "a1" not in calls.done
        release.set()


def test_a_key_waits_without_attempts_while_a_call_that_was_given_up_runs() -> None:
    office, calls = Office(retry=Retry(2, first="5ms", max="5ms")), Calls()
    release = threading.Event()
    calls.when("a1", lambda delivery: release.wait(30) if delivery.attempt == 1 else None)
    office.topic.push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls, timeout="50ms") as worker:
        until(lambda: worker._session.calls.counts[OutcomeKind.LATER] >= 3)
        assert calls.calls == [("a1", 1)]
        assert worker.stats().failed == 1
        release.set()
        until(lambda: "a2" in calls.done)
    assert calls.calls == [("a1", 1), ("a1", 2), ("a2", 1)]
    assert len(office.subscription.dead_letters) == 0


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


def test_a_message_that_does_not_pass_the_filter_is_acknowledged_without_a_call() -> None:
    office, calls = Office(filter="header.country == 'IN'"), Calls()
    office.topic.push("a1", key="a", headers={"country": "IN"})
    office.topic.push("a2", key="a", headers={"country": "FR"})
    office.topic.push("a3", key="a", headers={"country": "IN"})
    with office.subscription.start(calls) as worker:
        calls.wait_done(2)
        until(lambda: worker.stats().filtered == 1)
    with office.subscription.start(calls):
        office.topic.push("a4", key="a", headers={"country": "IN"})
        calls.wait_done(3)
    assert calls.done == ["a1", "a3", "a4"]


def test_a_function_filters_messages_also_behind_a_failed_one() -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=1)
    office.topic.push_many([("a", "a1"), ("a", "a2"), ("a", "a3")])

    def wanted(message: Message[Any]) -> bool:
        return bool(message.value != "a2")

    with office.subscription.start(calls, filter=wanted):
        calls.wait_done(2)
    assert calls.done == ["a1", "a3"]


def test_a_filter_that_fails_is_a_failed_attempt() -> None:
    office, calls, errors = Office(), Calls(), iter([RuntimeError("no database")])

    def wanted(message: Message[Any]) -> bool:
        for error in errors:
            raise error
        return True

    office.topic.push("a1", key="a")
    with office.subscription.start(calls, filter=wanted):
        calls.wait_done(1)
    assert calls.calls == [("a1", 2)]


@pytest.mark.parametrize("first", [RuntimeError("no database"), None], ids=["raises", "none"])
def test_what_a_filter_refuses_is_not_called_although_it_failed_before(
    first: RuntimeError | None,
) -> None:
    office, calls, failed = Office(), Calls(), iter([first])

    def wanted(message: Message[Any]) -> Any:
        for error in failed:
            if error is None:
                return None
            raise error
        return message.value != "a1"

    office.topic.push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls, filter=wanted) as worker:
        calls.wait_done(1)
        assert worker.stats().filtered == 1
        assert worker.stats().failed == 1
    assert calls.done == ["a2"]


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


def shards_of(worker: Any) -> list[Any]:
    return list(worker._session.machine.shards.values())


def test_a_worker_that_ends_waits_for_its_calls() -> None:
    office, calls, begun, release = Office(), Calls(), threading.Event(), threading.Event()

    def act(delivery: Delivery[Any]) -> None:
        begun.set()
        assert release.wait(30)

    calls.when("a1", act)
    office.topic.push_many([("a", "a1"), ("a", "a2")])
    worker = office.subscription.start(calls)
    assert begun.wait(30)
    threading.Timer(0.05, release.set).start()
    assert worker.close()
    assert calls.done == ["a1"]
    with office.subscription.start(calls):
        calls.wait_done(2)
    assert calls.calls == [("a1", 1), ("a2", 1)]


def test_a_call_that_outlives_the_drain_is_redelivered() -> None:
    office, calls, begun, release = Office(), Calls(), threading.Event(), threading.Event()

    def act(delivery: Delivery[Any]) -> None:
        if not begun.is_set():
            begun.set()
            assert release.wait(30)

    calls.when("a1", act)
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls, drain_timeout="20ms")
    assert begun.wait(30)
    assert not worker.close()
    release.set()
    with office.subscription.start(calls):
        calls.wait_done(2)
    assert [value for value, _ in calls.calls] == ["a1", "a1"]


def test_a_worker_ends_when_its_subscription_is_deleted() -> None:
    office = Office()
    with office.subscription.start(Calls()) as worker:
        office.subscription.delete()
        with pytest.raises(UnknownSubscription, match="mailer"):
            worker.wait(30)


@pytest.mark.parametrize("topic", ["orders", "refunds"])
def test_a_worker_ends_when_another_subscription_has_its_name(topic: str) -> None:
    office, calls = Office(), Calls()
    office.hub.create_topic("refunds", partitions=1)
    with office.subscription.start(calls) as worker:
        until(lambda: worker.stats().shards)
        office.subscription.delete()
        office.hub.create_subscription("mailer", topic=topic, on_dead_letter="continue")
        office.hub.topic(topic).push("a1", key="a")
        with pytest.raises(UnknownSubscription, match="mailer"):
            worker.wait(30)
    assert calls.calls == []


def test_a_worker_of_a_subscription_that_was_created_again_follows_its_settings() -> None:
    office, calls = Office(), Calls()
    office.hub.create_topic("refunds", partitions=1)
    office.subscription.delete()
    office.hub.create_subscription("mailer", topic="refunds", on_dead_letter="continue")
    calls.fails("a1", times=1, error=Reject("no such customer"))
    office.hub.topic("refunds").push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls):
        calls.wait_done(1)
    assert calls.done == ["a2"]


def test_a_worker_ends_when_its_hub_is_closed() -> None:
    office = Office()
    with office.subscription.start(Calls()) as worker:
        office.hub.close()
        with pytest.raises(HubClosed):
            worker.wait(30)


def test_a_worker_whose_hub_was_closed_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    office, calls = Office(), Calls()
    office.topic.push("a1", key="a")
    worker = office.subscription.start(calls)
    calls.wait_done(1)
    office.hub.close()
    until(lambda: set(threading.enumerate()) <= before)
    assert not worker.close()


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


def handle_at_once(delivery: Delivery[Any]) -> None:
    pass


async def handle_on_a_loop(delivery: Delivery[Any]) -> None:
    pass


@pytest.mark.parametrize("handler", [handle_at_once, handle_on_a_loop])
def test_a_thread_that_cannot_go_on_ends_the_worker(handler: Any) -> None:
    office = Office()
    with office.subscription.start(handler) as worker:
        session: Any = worker._session
        session.calls.counts = None  # so that no outcome can be recorded
        office.topic.push("a1", key="a")
        with pytest.raises(TypeError):
            worker.wait(30)


def test_a_filter_that_exits_is_a_failed_attempt() -> None:
    office, calls, errors = Office(), Calls(), iter([SystemExit(1)])

    def wanted(message: Message[Any]) -> bool:
        for error in errors:
            raise error
        return True

    office.topic.push("a1", key="a")
    with office.subscription.start(calls, filter=wanted):
        calls.wait_done(1)
    assert calls.calls == [("a1", 2)]


def test_outcomes_that_cannot_be_stored_are_logged_once_and_again_when_they_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tailrace.subscription")
    backend, calls = FaultyBackend(), Calls()
    office = Office(backend=backend)
    calls.fails("a1", times=1)
    office.topic.push("a1", key="a")
    refused: list[Transaction] = []

    def refuse(transaction: Transaction) -> None:
        moves = any(retry_queue("mailer") in str(where) for where, _ in transaction.appends)
        if moves and len(refused) < 3:
            refused.append(transaction)
            raise DiskFull("no disk space for the hub")

    backend.before = refuse
    with office.subscription.start(calls):
        calls.wait_done(1)
    told = [record.getMessage() for record in caplog.records if "storing" in record.getMessage()]
    assert told == [
        "mailer: storing the outcomes of calls failed, retrying: no disk space for the hub",
        "mailer: storing the outcomes of calls succeeded again",
    ]


async def _async_handler(delivery: Delivery[Any]) -> None:
    raise LookupError("no such warehouse")


def _handler(delivery: Delivery[Any]) -> None:
    raise LookupError("no such warehouse")


@pytest.mark.parametrize("handler", [_handler, _async_handler])
def test_the_first_failure_of_a_message_is_logged_with_its_traceback(
    handler: Callable[[Delivery[Any]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    office = Office(retry=Retry(attempts=2, first="1ms"))
    office.topic.push("a1", key="a")
    with office.subscription.start(handler):
        until(lambda: len(office.subscription.dead_letters) == 1)
    first, last = [record for record in caplog.records if "failed" in record.getMessage()]
    assert first.exc_info is not None
    assert handler.__name__ in "".join(traceback.format_exception(first.exc_info[1]))
    assert last.exc_info is None


def test_a_message_that_is_rejected_on_purpose_has_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=1, error=Reject("negative total"))
    office.topic.push("a1", key="a")
    with office.subscription.start(calls):
        until(lambda: len(office.subscription.dead_letters) == 1)
    (record,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert record.exc_info is None
