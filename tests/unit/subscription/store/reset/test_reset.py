"""Offset resets of a subscription: what is delivered again, passed over, or refused."""

from __future__ import annotations

import pickle
import sqlite3
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace import (
    Busy,
    Delivery,
    InvalidValue,
    Reject,
    Retry,
    SqlEffects,
    StorageDeleted,
    Subscription,
    Topic,
)
from tailrace.backend.contract import Change
from tailrace.errors import OutOfRange
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tailrace.operations.explain import explain
from tailrace.subscription.store.definition import find_definition
from tailrace.subscription.store.names import SUBSCRIPTIONS
from tailrace.testing import MemoryBackend
from tailrace.topic.trimming import to_delete
from tests.support.topics import all_values, push
from tests.support.waiting import until
from tests.support.workers import SOON, Calls, Office


def drain(subscription: Subscription, count: int, **options: Any) -> list[Delivery[Any]]:
    """Work until this number of messages is handled, and return their deliveries."""
    seen: list[Delivery[Any]] = []
    with subscription.start(seen.append, **options):
        until(lambda: len(seen) >= count)
    assert len(seen) == count
    return seen


def by_key(deliveries: list[Delivery[Any]]) -> dict[str | None, list[Any]]:
    found = defaultdict(list)
    for each in deliveries:
        found[each.key].append(each.value)
    return dict(found)


def sequence(delivery: Delivery[Any]) -> tuple[int, int, int]:
    """Return the order in which a receiver accepts the messages of a key."""
    return delivery.reset, delivery.storage, delivery.offset


def scaled(*counts: int, shards: int | None = None, messages: int = 40) -> Office:
    """Return an office whose topic has storage topics of these partitions, with messages in each,
    all of which are handled."""
    office = Office(partitions=counts[0], shards=shards)
    for number, count in enumerate(counts):
        if number:
            office.topic.scale(count, any_count=True)
        push(office.topic, messages, first=number * messages)
        drain(office.subscription, messages)
    return office


@pytest.mark.parametrize("gap_every", [0, 3])
def test_everything_is_delivered_again_in_order_and_with_other_ids(gap_every: int) -> None:
    office = Office(partitions=2, backend=MemoryBackend(gap_every=gap_every))
    push(office.topic, 20)
    first = drain(office.subscription, 20)
    plan = office.subscription.reset("start")
    assert (plan.queue, plan.number, plan.again, plan.passed) == ("mq", 1, 20, 0)
    again = drain(office.subscription, 20)
    assert by_key(again) == by_key(first)
    assert {each.id for each in again} == {f"{each.id}+r1" for each in first}
    assert not any(each.reset for each in first)


def test_a_rewind_over_storage_topics_of_one_base_is_in_order_on_the_same_shards() -> None:
    office = scaled(2, 10, 4, shards=2)
    office.subscription.reset("start")
    again = drain(office.subscription, 120)
    for values in by_key(again).values():
        assert values == sorted(values)
    assert office.subscription.describe().shards == 2


def test_a_rewind_over_storage_topics_that_disagree_is_refused_with_the_reason() -> None:
    office = scaled(2, shards=2)
    for partitions in (3, 4):
        office.topic.scale(partitions)
    open_all(office)
    with pytest.raises(InvalidValue) as caught:
        office.subscription.reset("start")
    assert "change their shard between orders/0 and orders/2" in str(caught.value)
    with pytest.raises(InvalidValue, match="does not change the number of shards yet"):
        office.subscription.reset("start", reshard=True)
    assert office.subscription.definition.reset == 0
    assert office.subscription.reset("end").again == 0


def open_all(office: Office) -> None:
    """Store a definition that reads all storage topics, as a later generation does."""
    backend = office.hub.backend
    found = find_definition(backend, "mailer")
    assert found is not None
    opened = msgspec.structs.replace(found.definition, opened=3)
    key = SUBSCRIPTIONS + "mailer"
    backend.store.commit(Change({key: found.version}, {key: msgspec.json.encode(opened)}))


def test_a_rewind_reaches_a_storage_topic_whose_retry_queue_is_long_gone() -> None:
    office, calls = Office(partitions=2), Calls()
    calls.fails(3, times=1)
    push(office.topic, 10)
    with office.subscription.start(calls):
        calls.wait_done(10)
    office.topic.scale(4)
    push(office.topic, 10, first=10)
    drain(office.subscription, 10)
    rq: Topic[Any] = office.hub.topic("tailrace.retry-queue.mailer")
    assert rq.produce_pointer == 1
    delete_storage(rq)
    office.subscription.reset("start")
    calls = Calls()
    calls.fails(3, times=1)
    with office.subscription.start(calls):
        calls.wait_done(20)
    for key in range(5):
        own = [value for value in calls.done if value % 5 == key]
        assert own == sorted(own)


def delete_storage(topic: Topic[Any]) -> None:
    """Delete the first storage topic of RQ or DLQ, as a generation does."""
    view = topic.view
    log = view.backend.log
    view.change(lambda now: now.without(to_delete(log, topic.name, now, (0,))))


def test_a_rewind_into_a_deleted_storage_topic_starts_with_what_is_left() -> None:
    office = scaled(2, 4, messages=10)
    office.topic.trim(1)
    with pytest.raises(StorageDeleted):
        office.subscription.reset("orders/0.0@0")
    assert office.subscription.reset("start").again == 10
    assert len(drain(office.subscription, 10)) == 10


def test_a_receiver_that_refuses_old_sequences_gets_every_message_after_each_rewind() -> None:
    office = scaled(2, 4, messages=20)
    newest: dict[str | None, tuple[int, int, int]] = {}
    for expected in (1, 2):
        office.subscription.reset("start")
        for each in drain(office.subscription, 40):
            assert sequence(each) > newest.get(each.key, (0, -1, -1))
            assert each.reset == expected
            newest[each.key] = sequence(each)
    office.topic.scale(8)
    push(office.topic, 20)
    assert all(sequence(each) > newest[each.key] for each in drain(office.subscription, 20))


def test_numbers_rise_in_a_storage_topic_that_was_added_before_a_reset_and_used_after_it() -> None:
    office = scaled(2, shards=2)
    office.topic.add_storage_topic(4)
    office.subscription.reset("start")
    office.topic.switch_produce()
    push(office.topic, 10)
    last: dict[str | None, tuple[int, int, int]] = {}
    for each in drain(office.subscription, 50):
        assert sequence(each) > last.get(each.key, (0, 0, -1))
        last[each.key] = sequence(each)
    assert {each[:2] for each in last.values()} == {(1, 1)}


def test_a_position_moves_its_partition_and_those_that_follow_it() -> None:
    office = scaled(2, 4, messages=20)
    plan = office.subscription.reset("orders/0.0@0")
    assert {str(each.partition) for each in plan.partitions} == {
        "orders/0.0",
        "orders/1.0",
        "orders/1.1",
    }
    again = drain(office.subscription, plan.again)
    assert {each.partition for each in again if each.storage == 0} == {0}
    assert {each.partition for each in again if each.storage == 1} <= {0, 1}
    assert all(each.reset == 1 for each in again)
    push(office.topic, 20, first=40)
    later = drain(office.subscription, 20)
    assert {(each.partition, each.reset) for each in later} <= {(0, 1), (1, 1), (2, 0), (3, 0)}
    assert {each.reset for each in later} == {0, 1}
    office.topic.scale(8)
    push(office.topic, 20, first=60)
    assert {each.reset for each in drain(office.subscription, 20)} == {1}


def test_forward_passes_over_what_is_not_delivered() -> None:
    office = Office(partitions=2)
    push(office.topic, 20)
    plan = office.subscription.reset("end")
    assert (plan.again, plan.passed) == (0, 20)
    assert office.subscription.describe().backlog.mq == 0
    push(office.topic, 3, first=20)
    assert sorted(each.value for each in drain(office.subscription, 3)) == [20, 21, 22]


def test_to_a_time_is_back_or_forward() -> None:
    office = Office(partitions=1)
    moment = datetime.fromisoformat("2026-01-01T00:00Z")
    for number in range(10):
        office.topic.push(number, key="k", timestamp=moment + timedelta(minutes=number))
    office.subscription.reset(moment + timedelta(minutes=4))
    assert [each.value for each in drain(office.subscription, 6)] == [4, 5, 6, 7, 8, 9]
    plan = office.subscription.reset("@2026-01-01T00:02Z")
    assert (plan.again, plan.passed) == (8, 0)
    assert [each.value for each in drain(office.subscription, 8)] == [2, 3, 4, 5, 6, 7, 8, 9]


def test_a_key_that_waits_in_the_retry_queue_gets_its_replays_behind_its_pending_messages() -> None:
    office, calls = Office(partitions=1, retry=Retry(5, first="50ms", max="50ms")), Calls()
    calls.fails(0, times=1000)
    push(office.topic, 6, keys=2)
    with office.subscription.start(calls):
        until(lambda: calls.done == [1, 3, 5] and len(calls.calls) > 4)
    office.subscription.reset("start")
    seen: list[tuple[int, Any]] = []
    with office.subscription.start(lambda each: seen.append((each.reset, each.value))):
        until(lambda: len(seen) == 9)
    assert [each for each in seen if each[1] % 2 == 0] == [
        (0, 0), (0, 2), (0, 4), (1, 0), (1, 2), (1, 4),
    ]  # fmt: skip
    assert [each for each in seen if each[1] % 2] == [(1, 1), (1, 3), (1, 5)]


def test_running_workers_continue_from_the_new_offsets() -> None:
    office, calls = Office(partitions=4), Calls()
    push(office.topic, 40)
    with office.subscription.start(calls), office.subscription.start(calls):
        calls.wait_done(40)
        office.subscription.reset("start")
        calls.wait_done(80)
        office.topic.push(40, key="k0")
        calls.wait_done(81)
    for key in range(5):
        own = [value for value in calls.done if value % 5 == key][:8]
        assert own == sorted(own)
    assert sorted(calls.done) == sorted([*range(40), *range(41)])


def blocked() -> Office:
    """Return an office with a key in RQ, and one in DLQ, with a follower each."""
    office, calls = Office(partitions=1, retry=Retry(2, first="10ms", max="10ms")), Calls()
    calls.when("dead", _reject)
    calls.fails("retried", times=1)
    for key in ("dead", "retried"):
        office.topic.push_many([(key, key), (key, f"behind {key}")])
    office.subscription.update(retry=Retry(2, first="1h", max="1h"))
    with office.subscription.start(calls):
        until(lambda: office.subscription.describe().backlog.mq == 0)
    backlog = office.subscription.describe().backlog
    assert (backlog.rq, backlog.dlq) == (2, 2)
    return office


def _reject(delivery: Delivery[Any]) -> None:
    raise Reject("no")


@pytest.mark.parametrize(("queue", "key"), [("rq", "retried"), ("dlq", "dead")])
def test_forward_in_a_queue_frees_its_keys(queue: str, key: str) -> None:
    office = blocked()
    plan = office.subscription.reset("end", queue=queue)
    assert (plan.passed, plan.again, plan.number) == (2, 0, 0)
    office.topic.push("new", key=key)
    assert [each.value for each in drain(office.subscription, 1)] == ["new"]
    backlog = office.subscription.describe().backlog
    assert (backlog.rq, backlog.dlq) == ((0, 2) if queue == "rq" else (2, 0))
    assert not office.subscription.reset("end", queue=queue).changes


def test_a_queue_is_not_moved_back() -> None:
    office = blocked()
    with pytest.raises(InvalidValue, match="RQ are moved forward only"):
        office.subscription.reset("start", queue="rq")
    office.subscription.reset("tailrace.dead-letter-queue.mailer/0.0@1", queue="dlq")
    with pytest.raises(InvalidValue, match="DLQ are moved forward only"):
        office.subscription.reset("tailrace.dead-letter-queue.mailer/0.0@0", queue="dlq")
    with pytest.raises(OutOfRange):
        office.subscription.reset("tailrace.dead-letter-queue.mailer/0.0@99", queue="dlq")
    with pytest.raises(InvalidValue, match=r"a position in tailrace.retry-queue.mailer"):
        office.subscription.reset("orders/0.0@0", queue="rq")
    with pytest.raises(InvalidValue, match="queue is 'x'"):
        office.subscription.reset("end", queue="x")


def test_a_reset_that_moves_nothing_changes_nothing() -> None:
    office = Office()
    before = office.subscription.definition
    assert not office.subscription.reset("end", queue="rq").changes
    assert office.subscription.definition == before


def test_each_reset_is_audited_once() -> None:
    office = Office()
    push(office.topic, 5)
    office.subscription.reset("end", reason="a bad import")
    [entry] = read_audit(office.hub, None, 10)
    assert entry.command == "subscription reset"
    assert entry.reason == "a bad import"
    assert entry.after["done"] == "the topic reset to end: 0 more and 5 fewer messages to handle"


def test_the_counts_of_a_queue_add_up_after_resets() -> None:
    hub = Hub.from_backend(MemoryBackend())
    jobs = hub.queue("jobs", shards=2, retry=SOON)
    jobs.push_many([(f"k{n % 5}", n) for n in range(10)])
    calls = Calls()
    with jobs.tail(calls):
        calls.wait_done(10)
    subscription = hub.subscription("jobs")
    subscription.reset("start")
    assert jobs.stats().conserved
    with jobs.tail(calls):
        calls.wait_done(15)
    subscription.reset("end")
    stats = jobs.stats()
    assert stats.conserved
    assert (stats.total.ready, stats.total.inserted) == (0, 10)


def test_a_subscription_that_is_deleted_and_created_again_has_no_resets() -> None:
    office = Office()
    push(office.topic, 3)
    drain(office.subscription, 3)
    office.subscription.reset("orders/0.0@0")
    office.subscription.delete()
    again = office.hub.create_subscription("mailer", topic="orders", retry=SOON)
    assert {each.reset for each in drain(again, 3)} == {0}


def test_effects_come_once_more_after_a_rewind_and_once_only(tmp_path: Path) -> None:
    path = tmp_path / "paid.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table paid (n)")
    office = Office(partitions=2)
    push(office.topic, 20)

    def pay(delivery: Delivery[Any]) -> None:
        delivery.connection.execute("insert into paid values (?)", (delivery.value,))

    def rows() -> list[int]:
        with sqlite3.connect(path) as connection:
            return sorted(n for (n,) in connection.execute("select n from paid"))

    effects = SqlEffects(str(path))
    for times in (1, 2, 3):
        with office.subscription.start(pay, guarantee="exactly-once", effects=effects):
            until(lambda times=times: len(rows()) >= 20 * times)  # type: ignore[misc]
        assert rows() == sorted([*range(20)] * times)
        office.subscription.reset("start")


def test_pushes_come_once_more_after_a_rewind() -> None:
    office = Office(partitions=2)
    copies: Topic[Any] = office.hub.create_topic("copies", partitions=1)
    push(office.topic, 10)

    def copy(delivery: Delivery[Any]) -> None:
        delivery.tx.push("copies", delivery.value, key=delivery.key)

    for times in (1, 2):
        with office.subscription.start(copy, guarantee="exactly-once"):
            until(lambda times=times: len(all_values(copies)) >= 10 * times)  # type: ignore[misc]
        assert sorted(all_values(copies)) == sorted([*range(10)] * times)
        office.subscription.reset("start")


def test_a_message_that_was_read_again_is_explained_and_redelivered_by_its_id() -> None:
    office, calls = Office(partitions=1, retry=Retry(1)), Calls()
    push(office.topic, 2, keys=1)
    drain(office.subscription, 2)
    office.subscription.reset("start")
    calls.when(0, _reject)
    with office.subscription.start(calls):
        until(lambda: office.subscription.describe().backlog.dlq == 2)
    [letter, _] = office.subscription.dead_letters.list()
    assert letter.message.id == "orders/0.0@0+r1"
    place = office.subscription.message(letter.message.id)
    assert place.origin == "orders/0.0@0+r1"
    for subject in ("orders/0.0@0+r1", "orders/0.0@0"):
        assert "mailer" in explain(office.hub, subject).headline
    seen: list[str] = []
    with office.subscription.start(lambda each: seen.append(each.id)):
        office.subscription.dead_letters.redeliver(id="orders/0.0@0+r1", break_order=True)
        until(lambda: seen == ["orders/0.0@0+r1"])


def test_a_copy_of_a_delivery_keeps_its_id() -> None:
    office = Office()
    push(office.topic, 1)
    drain(office.subscription, 1)
    office.subscription.reset("start")
    [delivery] = drain(office.subscription, 1)
    assert pickle.loads(pickle.dumps(delivery)).id == delivery.id == "orders/0.0@0+r1"


def test_a_rewind_over_generations_is_in_order_on_the_present_shards() -> None:
    office = scaled(2, 4, shards=2, messages=20)
    with office.subscription.start(lambda delivery: None):
        assert office.subscription.change_shards(1, wait="30s")
    office.subscription.reset("start")
    for values in by_key(drain(office.subscription, 40)).values():
        assert values == sorted(values)


def test_a_reset_is_busy_while_the_number_of_shards_is_changed() -> None:
    office = Office(partitions=2, shards=2)
    push(office.topic, 10)
    office.topic.scale(3)
    assert not office.subscription.change_shards(3)
    with pytest.raises(Busy, match="the number of shards of mailer is being changed"):
        office.subscription.reset("start")
    office.subscription.change_shards(2, uneven=True)
    assert office.subscription.reset("end").passed == 10


def test_forward_in_a_queue_frees_keys_that_are_fed_from_an_older_storage_topic() -> None:
    hub, calls = Hub.from_backend(MemoryBackend()), Calls()
    topic = hub.create_topic("orders", partitions=12, router="range")
    mailer = hub.create_subscription(
        "mailer", topic="orders", shards=4, rq_partitions=4, dlq_partitions=4
    )
    for number in range(20):
        calls.when(number, _reject)
    push(topic, 20, keys=10)
    with mailer.start(calls):
        until(lambda: mailer.describe().backlog.dlq == 20)
        assert mailer.change_shards(3, wait="30s")
    assert mailer.describe().backlog.dlq == 20
    assert mailer.reset("end", queue="dlq").passed == 20
    assert mailer.describe().backlog.dlq == 0
    push(topic, 10, keys=10, first=20)
    assert len(drain(mailer, 10)) == 10
