"""Queues in the Python API: opened, pushed to, consumed, paused, counted and deleted."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace import Delivery, Envelope, Hub, Reject, Retry, SqlEffects
from tailrace.errors import (
    Fenced,
    InvalidName,
    InvalidValue,
    QueueExists,
    TopicExists,
    TopicTypeMismatch,
    UnknownQueue,
    UnknownTopic,
)
from tailrace.subscription.store import lifecycle
from tailrace.subscription.store.names import SUBSCRIPTIONS
from tailrace.testing import MemoryBackend
from tailrace.topic.composite import TOPICS
from tests.support.interleaved_store import InterleavedBackend
from tests.support.waiting import DEADLINE_S, until


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub in memory, with gaps in the offsets, and a clock that runs."""
    with Hub.from_backend(MemoryBackend(gap_every=3)) as hub:
        yield hub


class Job(msgspec.Struct):
    """A payload."""

    n: int


def ignore(job: Delivery[Any]) -> None:
    """Succeed."""


def take_list(jobs: list[Delivery[Any]]) -> None:
    """Succeed with a list."""


def acked(queue: tailrace.Queue[Any]) -> int:
    return queue.stats().total.acked


def hub_behind(hub: Hub, create: Callable[[], object]) -> Hub:
    """A hub in another process, which looks for the queue just before `create` creates it."""
    backend: Any = InterleavedBackend(hub.backend, SUBSCRIPTIONS + "jobs", create)
    return Hub.from_backend(backend)


def values(hub: Hub, topic: str) -> list[Any]:
    with hub.topic(topic).tail(group="look", until="end") as consumer:
        return sorted(delivery.value for delivery in consumer)


def test_a_queue_is_created_when_it_is_named_for_the_first_time(hub: Hub) -> None:
    queue = hub.queue("jobs", Job)
    assert (queue.name, hub.queues()) == ("jobs", ["jobs"])
    assert queue.subscription.definition.shards == 12
    assert hub.topic("jobs", Job).view.definition.shape.partitions == 12
    assert queue.subscription.definition.queue
    assert repr(queue) == f"<Queue jobs of {hub.backend.name}>"
    assert hub.queue("jobs", Job, strict=True).name == "jobs"


def test_a_strict_queue_that_does_not_exist_is_unknown_and_is_not_created(hub: Hub) -> None:
    hub.queue("jobs")
    with pytest.raises(UnknownQueue, match=r"no queue 'job'.*did you mean 'jobs'"):
        hub.queue("job", strict=True)
    assert hub.queues() == ["jobs"]


def test_a_queue_of_another_type_is_refused(hub: Hub) -> None:
    hub.queue("jobs", Job)
    with pytest.raises(TopicTypeMismatch):
        hub.queue("jobs", int)


def test_settings_that_are_given_must_be_those_of_the_queue(hub: Hub) -> None:
    hub.queue("jobs", retry=Retry(3), on_dead_letter="continue")
    hub.queue("jobs", retry=Retry(3))
    hub.queue("jobs")
    with pytest.raises(QueueExists, match="its retry policy is attempts 3"):
        hub.queue("jobs", retry=Retry(4))
    with pytest.raises(QueueExists, match="its on_dead_letter is continue, not block"):
        hub.queue("jobs", on_dead_letter="block")


def test_another_number_of_shards_is_refused_with_both_numbers_and_what_to_do(hub: Hub) -> None:
    hub.queue("jobs", shards=2)
    hub.queue("jobs", shards=2, strict=True)
    for strict in (False, True):
        with pytest.raises(
            QueueExists,
            match=r"queue 'jobs' exists.*its number of shards is 2, not 4.*open it without these",
        ):
            hub.queue("jobs", shards=4, strict=strict)


def test_the_name_of_a_subscription_is_not_one_of_a_queue(hub: Hub) -> None:
    hub.create_topic("orders")
    hub.create_subscription("mailer", topic="orders")
    with pytest.raises(InvalidName, match="'mailer' is a subscription of 'orders'"):
        hub.queue("mailer")
    assert "mailer" not in hub.topics()


def test_an_existing_topic_is_not_made_a_queue_unless_that_is_asked_for(hub: Hub) -> None:
    hub.create_topic("jobs", int, partitions=2)
    with pytest.raises(
        TopicExists,
        match=r"it is a topic without a queue.*hub\.queue\('jobs', from_topic=True\)"
        r".*tailrace queue create jobs --from-topic",
    ):
        hub.queue("jobs", int)
    assert (hub.queues(), hub.subscriptions()) == ([], [])


def test_a_topic_that_another_process_creates_meanwhile_is_not_made_a_queue(hub: Hub) -> None:
    backend: Any = InterleavedBackend(
        hub.backend, TOPICS + "jobs", lambda: hub.create_topic("jobs")
    )
    with pytest.raises(TopicExists, match="it is a topic without a queue"):
        Hub.from_backend(backend).queue("jobs")
    assert hub.queues() == []


def test_a_queue_that_another_process_creates_meanwhile_is_opened_if_it_agrees(hub: Hub) -> None:
    other = hub_behind(hub, lambda: hub.queue("jobs", shards=2, retry=Retry(3)))
    assert other.queue("jobs", shards=2).subscription.definition.retry == Retry(3)


def test_a_queue_that_another_process_creates_meanwhile_is_refused_if_it_differs(hub: Hub) -> None:
    other = hub_behind(hub, lambda: hub.queue("jobs", shards=2))
    with pytest.raises(QueueExists, match="its number of shards is 2, not 4"):
        other.queue("jobs", shards=4)


@pytest.mark.parametrize("read", [1, 2, 3])
def test_a_queue_that_another_process_creates_between_two_reads_is_opened(
    hub: Hub, read: int
) -> None:
    backend: Any = InterleavedBackend(
        hub.backend, TOPICS + "jobs", lambda: hub.queue("jobs", shards=2), read=read
    )
    assert Hub.from_backend(backend).queue("jobs", shards=2).subscription.definition.shards == 2


def test_a_deletion_that_is_interrupted_leaves_no_half_of_a_queue(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.queue("jobs", int).push(1, key="c7")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "_clear_tables", stop)  # what follows the first commit
        with pytest.raises(KeyboardInterrupt):
            hub.delete_queue("jobs")
    assert (hub.queues(), hub.topics()) == ([], [])
    assert hub.queue("jobs", int).stats().total.inserted == 0


def test_an_existing_topic_becomes_a_queue_from_its_first_message_on(hub: Hub) -> None:
    hub.create_topic("jobs", int, partitions=2).push(7, key="c7")
    with pytest.raises(TopicTypeMismatch):
        hub.queue("jobs", str, from_topic=True)
    queue = hub.queue("jobs", int, from_topic=True)
    assert queue.subscription.definition.shards == 2
    assert queue.stats().total.ready == 1


def test_a_topic_that_is_to_become_a_queue_must_exist(hub: Hub) -> None:
    with pytest.raises(UnknownTopic):
        hub.queue("jobs", int, from_topic=True)
    assert (hub.queues(), hub.topics()) == ([], [])


def test_push_many_takes_pairs_or_envelopes_and_no_mixture(hub: Hub) -> None:
    queue = hub.queue("jobs", int)
    assert len(queue.push_many([("c7", 1), (None, 2)])) == 2
    envelope = Envelope(3, key="c7", headers={"country": "IN"})
    (receipt,) = queue.push_many([envelope])
    assert hub.topic("jobs").read(*receipt_place(receipt)).headers == {"country": b"IN"}
    mixture: Any = [("c7", 4), envelope]
    with pytest.raises(InvalidValue):
        queue.push_many(mixture)
    assert queue.stats().total.inserted == 3


def receipt_place(receipt: tailrace.Receipt) -> tuple[int, int, int]:
    return receipt.storage, receipt.partition, receipt.offset


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"guarantee": "twice"}, "guarantee is 'twice' · valid: at-least-once, exactly-once"),
        ({"guarantee": "exactly-once", "acking": False}, "at-most-once with acking=False"),
        ({"effects": SqlEffects("app.db")}, "'exactly-once' with effects"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"batch": True, "batch_size": 0}, "batch_size is 0"),
        ({"timeout": "0s"}, "timeout is '0s'"),
    ],
)
def test_options_that_are_not_valid_are_refused(
    hub: Hub, options: dict[str, Any], problem: str
) -> None:
    queue = hub.queue("jobs")
    with pytest.raises(InvalidValue) as refused:
        queue.tail(ignore, **options)
    assert problem in str(refused.value)
    assert queue.stats().consumers == 0


def test_effects_of_a_coroutine_function_are_refused(hub: Hub, tmp_path: Path) -> None:
    async def write(job: Delivery[Any]) -> None: ...

    sqlite3.connect(tmp_path / "app.db").execute("CREATE TABLE rows (n)")
    effects = SqlEffects(tmp_path / "app.db")
    with pytest.raises(InvalidValue, match="not async"):
        hub.queue("jobs").tail(write, guarantee="exactly-once", effects=effects)


def test_a_consumer_tells_how_it_works(hub: Hub) -> None:
    queue = hub.queue("jobs", shards=2)
    with queue.tail(ignore, id="host-1", acking=False) as consumer:
        assert consumer.id.startswith("host-1.")
        assert (consumer.guarantee, consumer.is_acking) == ("at-most-once", False)
        assert consumer.batch_size == 1
        until(lambda: len(consumer.stats().shards) == 2)
    with queue.tail(take_list, batch=True) as consumer:
        assert (consumer.is_acking, consumer.batch_size) == (True, 100)


def test_exactly_once_stores_pushes_with_the_acknowledgement_or_not_at_all(hub: Hub) -> None:
    queue = hub.queue("jobs", int, retry=Retry(5, first="1ms"))
    hub.create_topic("done", int, partitions=1)

    def work(job: Delivery[int]) -> None:
        job.tx.push("done", job.value, key=job.key)
        if job.value % 5 == 0 and job.attempt == 1:
            raise ConnectionError("after the push")

    queue.push_many([(f"c{n % 7}", n) for n in range(50)])
    with queue.tail(work, guarantee="exactly-once"):
        until(lambda: acked(queue) == 50)
    assert values(hub, "done") == list(range(50))
    assert queue.stats().conserved


def test_exactly_once_into_sqlite_writes_each_row_once(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    sqlite3.connect(file).execute("CREATE TABLE rows (n)")
    queue = hub.queue("jobs", int, retry=Retry(5, first="1ms"))

    def work(batch: list[Delivery[int]]) -> None:
        for job in batch:
            job.connection.execute("INSERT INTO rows VALUES (?)", (job.value,))
            if job.value % 5 == 0 and job.attempt == 1:
                raise ConnectionError("after the insert")

    queue.push_many([(f"c{n}", n) for n in range(30)])
    effects = SqlEffects(file)
    with queue.tail(work, guarantee="exactly-once", effects=effects, batch=True, batch_size=10):
        until(lambda: acked(queue) == 30)
    rows = sqlite3.connect(file).execute("SELECT n FROM rows ORDER BY n").fetchall()
    assert [n for (n,) in rows] == list(range(30))


def test_at_most_once_acknowledges_before_the_call(hub: Hub) -> None:
    queue = hub.queue("jobs", int, shards=1)
    entered, leave = threading.Event(), threading.Event()

    def work(job: Delivery[int]) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    queue.push(1, key="c7")
    with queue.tail(work, acking=False):
        assert entered.wait(DEADLINE_S)
        assert acked(queue) == 1
        leave.set()


def test_at_most_once_a_message_that_fails_is_not_called_again(hub: Hub) -> None:
    queue = hub.queue("jobs", int, retry=Retry(5, first="1ms"))
    calls: list[int] = []

    def work(job: Delivery[int]) -> None:
        calls.append(job.value)
        raise ConnectionError("no answer")

    queue.push_many([("c7", 1), ("c7", 2)])
    with queue.tail(work, acking=False):
        until(lambda: calls == [1, 2])
    assert queue.stats().total.failed == 2
    assert queue.stats().conserved


def test_a_paused_queue_calls_nothing_until_it_is_played(hub: Hub) -> None:
    queue = hub.queue("jobs", int, shards=2)
    calls: list[int] = []
    with queue.tail(lambda job: calls.append(job.value)):
        assert queue.pause("a test")
        assert not queue.pause("again")
        assert queue.pause(drain=True, timeout="30s")
        queue.push(1, key="c7")
        assert (queue.stats().total.ready, calls) == (1, [])
        assert queue.play()
        assert not queue.play()
        until(lambda: acked(queue) == 1)
    assert calls == [1]


def test_a_drain_waits_for_the_calls_in_flight(hub: Hub) -> None:
    queue = hub.queue("jobs", int, shards=1)
    entered, leave = threading.Event(), threading.Event()

    def work(job: Delivery[int]) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    queue.push(1, key="c7")
    with queue.tail(work):
        assert entered.wait(DEADLINE_S)
        assert not queue.pause(drain=True, timeout="100ms")
        leave.set()
        assert queue.pause(drain=True, timeout="30s")
        assert queue.stats().total.in_flight == 0


def test_a_rebalance_divides_the_shards_evenly(hub: Hub) -> None:
    queue = hub.queue("jobs", shards=4)
    assert queue.rebalance() == (True, {}, ())
    with queue.tail(ignore, id="a"), queue.tail(ignore, id="b"):
        done = queue.rebalance(timeout="30s")
        assert done.balanced
        assert sorted(map(len, done.shards.values())) == [2, 2]


def test_more_consumers_than_shards_stand_by(hub: Hub) -> None:
    queue = hub.queue("jobs", shards=1)
    with queue.tail(ignore), queue.tail(ignore):
        until(lambda: queue.stats().consumers == 2)
        until(lambda: queue.stats().standby == 1)


def test_a_second_consumer_with_the_same_id_ends_the_first(hub: Hub) -> None:
    queue = hub.queue("jobs", int, shards=2)
    first = queue.tail(ignore, id="host-1")
    until(lambda: len(first.stats().shards) == 2)
    with queue.tail(ignore, id="host-1") as second:
        with pytest.raises(Fenced):
            first.wait(DEADLINE_S)
        first.shutdown()
        queue.push(1, key="c7")
        until(lambda: second.stats().succeeded == 1)


def test_dead_letters_are_counted_listed_and_discarded(hub: Hub) -> None:
    queue = hub.queue("jobs", int)

    def work(job: Delivery[int]) -> None:
        raise Reject("never")

    queue.push_many([("c7", 1), ("c7", 2), ("c8", 3)])
    with queue.tail(work):
        until(lambda: queue.stats().total.dead == 3)
        assert queue.stats().conserved
        queue.dead_letters.discard(key="c7", reason="a test")
        until(lambda: queue.stats().total.discarded == 2)
    total = queue.stats().total
    assert (total.dead, total.discarded, total.acked) == (1, 2, 0)
    assert queue.stats().conserved


def test_messages_that_a_filter_refuses_are_counted(hub: Hub) -> None:
    queue = hub.queue("jobs", int)
    queue.push_many([("c7", n) for n in range(4)])
    with queue.tail(ignore, filter=lambda message: message.value % 2 == 0):
        until(lambda: queue.stats().total.ready == 0 and acked(queue) == 2)
    assert queue.stats().total.filtered == 2
    assert queue.stats().conserved


def test_a_deleted_queue_leaves_nothing(hub: Hub) -> None:
    queue = hub.queue("jobs", int)
    queue.push(1)
    hub.delete_queue("jobs")
    assert (hub.queues(), hub.topics(), hub.subscriptions()) == ([], [], [])
    with pytest.raises(UnknownQueue):
        hub.delete_queue("jobs")
    assert hub.queue("jobs", int).stats().total.inserted == 0


def test_every_call_of_a_deleted_queue_says_that_there_is_no_such_queue(hub: Hub) -> None:
    queue = hub.queue("jobs", int)
    hub.delete_queue("jobs")
    for call in (
        lambda: queue.tail(ignore),
        queue.stats,
        queue.pause,
        queue.play,
        queue.rebalance,
        lambda: queue.replay(0),
        lambda: len(queue.dead_letters),
    ):
        with pytest.raises(UnknownQueue, match="no queue 'jobs'"):
            call()


def test_a_consumer_of_a_deleted_queue_ends_with_an_error_about_the_queue(hub: Hub) -> None:
    with hub.queue("jobs", int).tail(ignore) as consumer:
        hub.delete_queue("jobs")
        with pytest.raises(UnknownQueue, match="no queue 'jobs'"):
            consumer.wait(DEADLINE_S)


def test_a_queue_whose_topic_was_deleted_is_reported_and_can_be_deleted(hub: Hub) -> None:
    hub.queue("jobs")
    hub.delete_topic("jobs")
    for strict in (True, False):
        with pytest.raises(UnknownTopic, match=r"of queue 'jobs' was deleted.*queue delete jobs"):
            hub.queue("jobs", strict=strict)
    hub.delete_queue("jobs")
    assert hub.queues() == []


def test_a_queue_that_is_refused_leaves_no_topic_behind(hub: Hub) -> None:
    with pytest.raises(InvalidValue, match="on_dead_letter is 'blok'"):
        hub.queue("jobs", on_dead_letter="blok")
    wrong: Any = 3
    with pytest.raises(InvalidValue, match="retry is 3"):
        hub.queue("jobs", retry=wrong)
    assert hub.topics() == []


def test_effects_that_are_an_address_only_are_refused_with_what_is_valid(hub: Hub) -> None:
    wrong: Any = "sqlite:///shop.db"
    with pytest.raises(InvalidValue, match="effects is 'sqlite:///shop"):
        hub.queue("jobs").tail(ignore, guarantee="exactly-once", effects=wrong)


def test_a_handler_that_does_not_agree_with_batch_is_refused(hub: Hub) -> None:
    queue = hub.queue("jobs")
    with pytest.raises(
        InvalidValue, match="take_list takes a list of deliveries, and is called with one"
    ):
        queue.tail(take_list)
    with pytest.raises(InvalidValue, match="ignore takes one delivery, and batch=True"):
        queue.tail(ignore, batch=True)
