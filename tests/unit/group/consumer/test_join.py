"""Joining and leaving a group of a hub, with the real runtime."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tailrace
from tailrace.errors import BackendUnavailable, InvalidValue
from tailrace.group.consumer.options import Until
from tailrace.group.store.presence import members
from tailrace.hub.hub import Hub
from tailrace.testing import ManualClock, MemoryBackend
from tests.support.processes import ended_well, fork
from tests.support.waiting import until


def test_a_hub_with_a_clock_of_its_own_is_consumed_by_that_of_the_machine() -> None:
    with Hub.from_backend(MemoryBackend(), clock=ManualClock()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push_many([(None, number) for number in range(3)])
        with topic.tail(group="billing", until="end") as consumer:
            assert [delivery.value for delivery in consumer] == [0, 1, 2]


def test_a_loop_after_one_without_a_block_gets_the_remaining_messages(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", partitions=4)
        topic.push_many([(f"c{number}", number) for number in range(100)])
        got = [delivery.value for delivery in topic.tail(group="billing", limit=10)]
        got += [delivery.value for delivery in topic.tail(group="billing", limit=90)]
    assert sorted(got) == list(range(100))


def test_a_consumer_whose_presence_cannot_be_stored_does_not_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = MemoryBackend()
    with Hub.from_backend(backend) as hub:
        consumer = hub.create_topic("orders", partitions=1).tail(group="billing")
        threads = set(threading.enumerate())
        with monkeypatch.context() as failing:
            failing.setattr(backend.store, "commit", _unavailable)
            with pytest.raises(BackendUnavailable), consumer:
                pass
        assert set(threading.enumerate()) <= threads


def test_a_loop_that_is_cancelled_as_it_begins_leaves_the_group(tmp_path: Path) -> None:
    async def cancelled(topic: tailrace.Topic[int], delay_s: float) -> None:
        async def consume() -> None:
            async with topic.tail(group="billing") as consumer:
                async for _ in consumer:
                    pass

        work = asyncio.create_task(consume())
        await asyncio.sleep(delay_s)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", int, partitions=2)
        for delay_ms in (0, 1, 2, 4, 8):
            asyncio.run(cancelled(topic, delay_ms / 1000))
            assert hub.group("billing").describe().consumers == ()


def test_consuming_a_deleted_topic_does_not_create_it_again(tmp_path: Path) -> None:
    settings = tailrace.HubSettings(auto_create=True)
    with tailrace.open(tmp_path / "hub", sync="none", settings=settings) as hub:
        hub.create_topic("orders.eu")
        consumer = hub.tail("orders.*", group="billing")
        hub.delete_topic("orders.eu")
        with pytest.raises(tailrace.UnknownTopic):
            consumer._session.state.decoder("orders.eu")
        assert hub.topics() == []


def test_a_loop_does_not_wait_for_a_deleted_topic() -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        consumer = topic.tail(group="billing")
        with topic.tail(group="billing") as other:
            hub.delete_topic("orders")
            with pytest.raises(tailrace.UnknownTopic):
                next(iter(other))
            with pytest.raises(tailrace.UnknownTopic), consumer:
                pass
        assert hub.group("billing").describe().consumers == ()


@pytest.mark.parametrize("count", [3, 9, 12])
def test_a_loop_to_the_end_consumes_a_topic_that_was_created_again(count: int) -> None:
    """The ledger of the deleted topic, which reaches offset 9, is not that of the new one."""
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push_many([(None, number) for number in range(9)])
        assert len(list(topic.tail(group="billing", until="end"))) == 9
        hub.delete_topic("orders")
        topic = hub.create_topic("orders", partitions=1)
        topic.push_many([(None, number) for number in range(count)])
        got = [delivery.value for delivery in topic.tail(group="billing", until="end")]
    assert got == list(range(count))


def _unavailable(_: object) -> NoReturn:
    raise BackendUnavailable("it does not answer")


def test_a_forked_child_that_leaves_the_block_of_its_parent_leaves_no_group(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push(1)
        with topic.tail(group="billing") as consumer:
            next(iter(consumer))
            child = fork(lambda: consumer.__exit__(None, None, None))
            assert ended_well(child)
            assert len(hub.group("billing").describe().consumers) == 1


@pytest.mark.parametrize(
    "options",
    [{"limit": "x"}, {"limit": 2.0}, {"attempts": True}, {"batch_size": 0}, {"ack": "later"}],
)
def test_an_invalid_option_is_named(options: dict[str, Any]) -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        with pytest.raises(tailrace.InvalidValue, match=next(iter(options))):
            topic.tail(group="billing", **options)


def test_a_consumer_that_left_is_no_longer_listed() -> None:
    hub = Hub.from_backend(MemoryBackend())
    with hub.create_topic("orders").tail(group="billing") as consumer:
        assert [each.session for each in members(hub.backend, "billing")] == [consumer.id]
    assert members(hub.backend, "billing") == []


def test_a_group_named_twice_must_have_the_same_name() -> None:
    hub = Hub.from_backend(MemoryBackend())
    hub.create_topic("orders")
    for group in (None, "billing"):
        assert hub.tail("$shared/billing/orders", group=group).group == "billing"
    valid = "'billing', the group in '\\$shared/billing/orders', or none"
    with pytest.raises(InvalidValue, match=valid):
        hub.tail("$shared/billing/orders", group="printing")
    assert hub.groups() == ["billing"]


def test_a_start_in_a_topic_that_is_not_the_groups_is_refused() -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        with pytest.raises(tailrace.InvalidValue, match="a position in orders"):
            topic.tail(group="billing", start="others/0.0@3")
        assert hub.groups() == []


@pytest.mark.parametrize("handler", [None, "charge"])
def test_a_handler_that_cannot_be_called_acknowledges_nothing(handler: Any) -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push(1)
        for way in ("run", "start"):
            with pytest.raises(tailrace.InvalidValue, match="handler"):
                getattr(topic.tail(group="billing"), way)(handler)
        with topic.tail(group="billing", until="end") as consumer:
            assert [delivery.value for delivery in consumer] == [1]


@pytest.mark.parametrize("until", ["end", None])
def test_a_filter_that_matches_no_topic_yet_logs_one_warning(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        with hub.tail("ord*", group="billing", until=until, limit=1) as consumer:
            if until is None:
                hub.create_topic("orders", partitions=1).push(7)
            assert [delivery.value for delivery in consumer] == ([] if until else [7])
        said = [each.getMessage() for each in caplog.records if "no topic" in each.message]
        assert said == ["group billing: no topic matches ord* yet"]


def test_joins_grants_and_revocations_are_logged_and_elections_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "tailrace.group")
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=2)
        with topic.tail(group="billing", id="a").start(print) as first:
            until(lambda: len(first.stats().partitions) == 2)
            with topic.tail(group="billing", id="b").start(print) as second:
                until(lambda: second.stats().partitions)
    logged = [
        (level, line.replace(first.id, "a").replace(second.id, "b"))
        for name, level, line in caplog.record_tuples
        if name == "tailrace.group"
    ]
    info = [line for level, line in logged if level == logging.INFO]
    assert "group billing: a joined" in info
    assert "group billing: b joined" in info
    assert any("orders/0.0 was granted to a, epoch" in line for line in info)
    moved = next(line.split()[2] for line in info if "is revoked from a" in line)
    assert any(f"{moved} was granted to b, epoch" in line for line in info)
    assert any(f"a no longer owns {moved}, epoch" in line for line in info)
    assert "group billing: b left" in info
    assert any("elected process" in line for level, line in logged if level == logging.DEBUG)
