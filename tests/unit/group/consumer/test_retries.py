"""Handlers that fail for a while, for ever, or because the hub does not answer."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tailrace import Retry
from tailrace.backend.contract import Transaction
from tailrace.delivery.delivery import Delivery
from tailrace.errors import BackendUnavailable, Busy, DeliveryFailed, DiskFull, InvalidValue
from tailrace.group.session.session import Session
from tailrace.group.store.failed_messages import failed_messages
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import MemoryBackend
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import GROUP, unacked_values
from tests.support.topics import push
from tests.support.waiting import until

SOON = Retry(first="1ms", max="5ms")


def test_a_worker_whose_handler_fails_more_often_than_a_loop_allows_recovers_by_itself(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4 and delivery.attempt < 12:
            raise ValueError("no stock")
        got.append(delivery.value)

    consume(topic, runtime, until="end").run(handler, retry=SOON)
    assert sorted(got) == list(range(10))
    assert unacked_values(topic) == []


def test_progress_is_committed_beside_a_message_whose_error_has_surrogates(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10, keys=10)

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4:
            raise ValueError("no file caf\udce9")

    with pytest.raises(DeliveryFailed):
        consume(topic, runtime).run(handler, retry=Retry(3, first="1ms"))
    assert 4 in unacked_values(topic)
    failed = failed_messages(topic.view.backend, GROUP)
    assert [each.error for some in failed.values() for each in some] == [
        "ValueError: no file caf\\udce9"
    ]


def test_a_worker_without_options_outlives_a_message_that_fails_again_and_again() -> None:
    topic = Hub.from_backend(MemoryBackend()).create_topic("orders", partitions=1)
    push(topic, 1)
    tried = threading.Semaphore(0)

    def handler(delivery: Delivery[Any]) -> None:
        tried.release()
        raise ValueError("no stock")

    consumer = topic.tail(group="billing").start(handler)
    for _ in range(6):  # one more than the attempts of a loop
        assert tried.acquire(timeout=60)
    assert consumer.running
    consumer.shutdown()
    assert unacked_values(topic) == [0]


def test_while_a_message_fails_only_its_key_waits_and_its_order_holds(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 200, keys=10)
    got: defaultdict[str | None, list[int]] = defaultdict(list)

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.key == "k3" and len(got["k3"]) == 2 and sum(map(len, got.values())) < 182:
            raise ValueError("no stock")
        got[delivery.key].append(delivery.value)

    consume(topic, runtime, until="end").run(handler, retry=SOON)
    assert all(got[f"k{key}"] == list(range(key, 200, 10)) for key in range(10))


def test_a_skipped_message_is_acknowledged_and_logged(
    topic: Topic[Any], runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    push(topic, 10)
    got: list[int] = []

    def handler(delivery: Delivery[Any]) -> None:
        if delivery.value == 4:
            raise ValueError("no stock")
        got.append(delivery.value)

    retry = Retry(attempts=2, first="1ms")
    consume(topic, runtime, until="end").run(handler, retry=retry, on_failed="skip")
    assert sorted(got) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert unacked_values(topic) == []
    assert "group billing skipped orders/0." in caplog.text


def test_stop_ends_a_worker_after_the_attempts_of_the_settings(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with pytest.raises(DeliveryFailed) as caught:
        consume(topic, runtime, until="end").run(_refuse, on_failed="stop")
    assert caught.value.attempts == 5
    assert str(caught.value.__cause__) == "no stock"


def test_the_number_of_attempts_in_a_policy_counts_more_than_that_of_the_consumer(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    consumer = consume(topic, runtime, until="end", attempts=1)
    with pytest.raises(DeliveryFailed) as caught:
        consumer.run(_refuse, retry=Retry(attempts=3, first="1ms"))
    assert caught.value.attempts == 3


def test_a_policy_is_checked_before_the_consumer_joins(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    consumer = consume(topic, runtime, until="end")
    not_a_policy: Any = 5
    with pytest.raises(InvalidValue, match=r"valid: a tailrace.Retry"):
        consumer.start(_refuse, retry=not_a_policy)
    assert not runtime.posted


@pytest.mark.parametrize("error", [DiskFull("no space left"), Busy("in use")], ids=["full", "busy"])
def test_an_outage_of_the_hub_at_any_commit_does_not_end_a_worker(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO)
    backend = FaultyBackend()
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 20)
    got: list[int] = []
    any_commit, owners_commit = _fail_times(5, error), _fail_times(1, error)

    def fail(transaction: Transaction) -> None:
        any_commit(transaction)  # Those of the runtime, too, which may meet all of the failures.
        if transaction.fence is not None:
            owners_commit(transaction)

    backend.before = fail
    consumer = topic.tail(group="billing").start(lambda delivery: got.append(delivery.value))
    until(lambda: len(got) == 20)
    assert consumer.running
    consumer.shutdown()
    assert unacked_values(topic) == []
    assert "consuming in group billing failed, retrying" in caplog.text


def test_a_worker_joins_its_group_when_the_hub_answers_again(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 3)
    got: list[int] = []
    fail = _fail_times(2, BackendUnavailable("locked"))

    def join(session: Session) -> FakeRuntime:
        fail(Transaction())
        return runtime.join(session)

    consumer = consume(topic, runtime, until="end", join=join)
    consumer.run(lambda delivery: got.append(delivery.value))
    assert sorted(got) == [0, 1, 2]


def test_a_worker_that_waits_for_the_hub_ends_by_shutdown(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    asked = threading.Event()

    def join(session: Session) -> FakeRuntime:
        asked.set()
        raise BackendUnavailable("locked")

    consumer = consume(topic, runtime, join=join).start(_refuse)
    assert asked.wait(60)
    consumer.shutdown()
    assert not consumer.running


def test_an_error_that_no_retry_can_help_ends_a_worker(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    def join(session: Session) -> FakeRuntime:
        raise PermissionError(13, "denied")

    with pytest.raises(PermissionError):
        consume(topic, runtime, join=join).run(_refuse)


def test_a_function_for_failed_messages_is_called_again_after_an_outage(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    fail, parked = _fail_times(2, DiskFull("no space left")), []

    def park(failed: DeliveryFailed) -> None:
        fail(Transaction())
        parked.append(failed.position)
        failed.delivery.ack()

    consume(topic, runtime, until="end", attempts=1).run(_refuse, on_failed=park)
    assert len(parked) == 1
    assert unacked_values(topic) == []


def _refuse(delivery: Delivery[Any]) -> None:
    raise ValueError("no stock")


def _fail_times(times: int, error: Exception) -> Callable[[Transaction], None]:
    left = iter([error] * times)  # `next` is atomic: several threads may commit

    def fail(transaction: Transaction) -> None:
        failure = next(left, None)
        if failure is not None:
            raise failure

    return fail
