"""Descriptions of groups, also of damaged, unused and seeking ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.backend.contract import Backend, Transaction
from tailrace.errors import BackendUnavailable
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.presence import HOLDS, enter, members
from tailrace.group.store.seek import seek
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Message, Partition
from tailrace.operations.explain import explain
from tailrace.operations.status import status
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.support.groups import GROUP, ack, ack_all, lead, owner
from tests.support.waiting import until


@pytest.fixture
def orders(backend: Backend, hub: Hub, clock: ManualClock) -> Topic[Any]:
    """2 partitions: 3 messages in the first and 5 in the second, each a second after the last."""
    topic = hub.create_topic("orders", partitions=2)
    for number, count in enumerate((3, 5)):
        key = next(key for key in map(str, range(100)) if topic.route(key) == number)
        for _ in range(count):
            topic.push("x", key=key)
            clock.advance(1)
    open_group(backend, GROUP, "orders", "earliest", clock)
    return topic


def messages(topic: Topic[Any], number: int) -> list[Message[Any]]:
    where = Partition(topic.name, 0, number)
    batches = topic.batches(0, number)
    return [message for batch in batches for message in topic.messages(where, batch)]


def test_lag_lists_the_partition_with_the_largest_lag_first(hub: Hub, orders: Topic[Any]) -> None:
    lag = hub.group(GROUP).lag()
    assert [stream.partition for stream in lag] == ["orders/0.1", "orders/0.0"]


def test_lag_leaves_out_finished_partitions(backend: Backend, hub: Hub, orders: Topic[Any]) -> None:
    orders.scale(4)
    ack_all(backend, "orders/0.0")
    described = {
        stream.partition: stream.state for stream in hub.group(GROUP).describe().partitions
    }
    assert described["orders/0.0"] is UnitState.FINISHED
    assert {stream.partition for stream in hub.group(GROUP).lag()} == described.keys() - {
        "orders/0.0"
    }


def test_lag_shows_the_time_of_the_first_unacknowledged_message(
    backend: Backend, hub: Hub, orders: Topic[Any]
) -> None:
    _, second, third = messages(orders, 0)
    for until_offset, first in ((second.offset, second), (third.offset, third)):
        ack(backend, "orders/0.0", 0, until_offset)
        oldest = {stream.partition: stream.oldest for stream in hub.group(GROUP).lag()}
        assert oldest["orders/0.0"] == first.timestamp
    ack_all(backend, "orders/0.0")
    oldest = {stream.partition: stream.oldest for stream in hub.group(GROUP).lag()}
    assert oldest["orders/0.0"] is None


def test_a_dead_process_leads_owns_and_consumes_nothing(
    backend: Backend, hub: Hub, orders: Topic[Any], clock: ManualClock
) -> None:
    with backend.hold(f"{HOLDS}p1", "process 1"):
        enter(backend, GROUP, "till", "p1", clock.now_ms())
        owner(backend, lead(backend), "orders/0.0")
        alive = hub.group(GROUP).describe()
    dead = hub.group(GROUP).describe()
    assert [each.id for each in alive.consumers] == ["till"]
    assert (alive.leader, alive.partitions[0].owner) == ("process 1", "b1")
    assert (dead.consumers, dead.leader, dead.term) == ((), None, None)
    assert (dead.partitions[0].owner, dead.partitions[0].epoch) == (None, None)


def test_an_owner_fenced_by_a_seek_owns_nothing(
    backend: Backend, hub: Hub, orders: Topic[Any]
) -> None:
    with backend.hold(f"{HOLDS}p1", "process 1"):
        owner(backend, lead(backend), "orders/0.0")
        assert hub.group(GROUP).describe().partitions[0].owner == "b1"
        seek(backend, GROUP, "earliest")
        assert hub.group(GROUP).describe().partitions[0].owner is None


def test_a_joining_consumer_removes_consumers_of_dead_processes(
    backend: Backend, orders: Topic[Any], clock: ManualClock
) -> None:
    enter(backend, GROUP, "dead", "p1", clock.now_ms())
    with backend.hold(f"{HOLDS}p2", "process 2"):
        enter(backend, GROUP, "first", "p2", clock.now_ms())
        enter(backend, GROUP, "second", "p2", clock.now_ms())
        assert [each.session for each in members(backend, GROUP)] == ["first", "second"]


def test_a_consumer_is_shown_with_how_long_its_process_has_been_silent(
    backend: Backend, hub: Hub, orders: Topic[Any], clock: ManualClock
) -> None:
    def silent_s() -> float:
        (consumer,) = hub.group(GROUP).describe().consumers
        return consumer.silent_s

    with backend.hold(f"{HOLDS}p1", "process 1") as hold:
        enter(backend, GROUP, "till", "p1", clock.now_ms())
        until(lambda: silent_s() > 0.5)
        beaten_at = time.monotonic()
        hold.beat()
        # However long the description takes: the silence before the heartbeat does not count.
        assert silent_s() < 0.2 + time.monotonic() - beaten_at


def test_only_unfinished_partitions_are_named_as_waited_for(
    backend: Backend, hub: Hub, orders: Topic[Any]
) -> None:
    orders.scale(1)
    ack_all(backend, "orders/0.0")
    orders.push("x", key="0")
    found = explain(hub, "orders/1.0")
    assert found.waits
    (fact,) = [fact for fact in found.facts if fact.name == GROUP]
    assert "it waits for orders/0.1 (lag " in fact.what
    assert "orders/0.0" not in fact.what


def test_the_lag_of_a_partition_with_a_damaged_next_record_is_shown_without_its_time(
    tmp_path: Path,
) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        orders = hub.create_topic("orders", partitions=1)
        orders.push(1)
        (file,) = (tmp_path / "hub").glob("topics/orders/*/*.log")
        file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
        orders.tail(group="billing")
        (stream,) = hub.group("billing").lag()
    assert (stream.lag, stream.oldest) == (1, None)


def test_a_seek_is_in_the_history(hub: Hub) -> None:
    hub.create_topic("orders", partitions=1).tail(group="billing")
    group = hub.group("billing")
    group.seek("latest")
    (line,) = group.history()
    assert (line.what, line.why) == ("seek", "to latest")


def test_a_seek_succeeds_also_when_history_cannot_be_written() -> None:
    backend = FaultyBackend()
    hub = Hub.from_backend(backend)
    hub.create_topic("orders", partitions=1).tail(group="billing")

    def fail(transaction: Transaction) -> None:
        if transaction.appends:
            raise BackendUnavailable("the disk is full")

    backend.before = fail
    assert hub.group("billing").seek("latest") == {"orders/0.0": 0}
    assert hub.group("billing").history() == []


def test_a_partition_that_receives_no_pushes_yet_is_explained(hub: Hub) -> None:
    orders = hub.create_topic("orders", partitions=4)
    orders.tail(group="billing")
    orders.add_storage_topic(8)
    found = explain(hub, "orders/1.3")
    assert found.headline.startswith("UNUSED")
    assert [each.command for each in found.remedies] == ["tailrace topic switch orders"]


def test_status_names_a_scaling_that_the_topic_can_have(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        orders = hub.create_topic("orders", partitions=1)
        consumers = [orders.tail(group="billing") for _ in range(5)]
        for consumer in consumers:
            consumer.__enter__()
        (note,) = status(hub).notes
        for consumer in consumers:
            consumer.__exit__(None, None, None)
    assert note.remedy == "tailrace topic scale orders 6"
