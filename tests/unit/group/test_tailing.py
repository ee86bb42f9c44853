"""Becoming a consumer of a group in a hub, and ceasing to be one, with the real runtime."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tailrace
from tailrace.errors import BackendUnavailable, InvalidValue
from tailrace.group.asked import Until
from tailrace.group.members import members
from tailrace.hub import Hub
from tailrace.testing import ManualClock, MemoryBackend
from tests.integration.processes import ended_well, fork


def test_a_hub_with_a_clock_of_its_own_is_consumed_by_that_of_the_machine() -> None:
    with Hub.from_backend(MemoryBackend(), clock=ManualClock()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push_many([(None, number) for number in range(3)])
        with topic.tail(group="billing", until="end") as deliveries:
            assert [delivery.value for delivery in deliveries] == [0, 1, 2]


def test_a_loop_after_one_without_a_block_gets_all_that_is_left(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", partitions=4)
        topic.push_many([(f"c{number}", number) for number in range(100)])
        got = [delivery.value for delivery in topic.tail(group="billing", limit=10)]
        got += [delivery.value for delivery in topic.tail(group="billing", limit=90)]
    assert sorted(got) == list(range(100))


def test_a_consumer_that_cannot_be_shown_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
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
            async with topic.tail(group="billing") as deliveries:
                async for _ in deliveries:
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


def test_a_topic_that_is_gone_is_not_made_again_by_who_consumes_it(tmp_path: Path) -> None:
    settings = tailrace.HubSettings(auto_create=True)
    with tailrace.open(tmp_path / "hub", sync="none", settings=settings) as hub:
        hub.create_topic("orders.eu")
        consumer = hub.tail("orders.*", group="billing")
        hub.delete_topic("orders.eu")
        with pytest.raises(tailrace.UnknownTopic):
            consumer._session.share.decoder("orders.eu")
        assert hub.topics() == []


def test_a_topic_that_was_deleted_is_not_waited_for() -> None:
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


def _unavailable(_: object) -> NoReturn:
    raise BackendUnavailable("it does not answer")


def test_a_forked_child_that_leaves_the_block_of_its_parent_leaves_no_group(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push(1)
        with topic.tail(group="billing") as deliveries:
            next(iter(deliveries))
            child = fork(lambda: deliveries.__exit__(None, None, None))
            assert ended_well(child)
            assert len(hub.group("billing").describe().consumers) == 1


@pytest.mark.parametrize(
    "options",
    [{"limit": "x"}, {"limit": 2.0}, {"attempts": True}, {"batch_size": 0}, {"ack": "later"}],
)
def test_an_option_that_is_not_valid_is_named(options: dict[str, Any]) -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        with pytest.raises(tailrace.InvalidValue, match=next(iter(options))):
            topic.tail(group="billing", **options)


def test_a_consumer_that_has_left_is_listed_no_longer() -> None:
    hub = Hub.from_backend(MemoryBackend())
    with hub.create_topic("orders").tail(group="billing") as consumer:
        assert [each.session for each in members(hub.backend, "billing")] == [consumer.id]
    assert members(hub.backend, "billing") == []


def test_a_group_that_is_named_twice_has_one_name() -> None:
    hub = Hub.from_backend(MemoryBackend())
    hub.create_topic("orders")
    for group in (None, "billing"):
        assert hub.tail("$shared/billing/orders", group=group).group == "billing"
    with pytest.raises(InvalidValue, match="'billing', as '\\$shared/billing/orders' says"):
        hub.tail("$shared/billing/orders", group="printing")
    assert hub.groups() == ["billing"]


def test_a_start_in_a_topic_that_is_not_the_groups_is_refused() -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        with pytest.raises(tailrace.InvalidValue, match="a position in orders"):
            topic.tail(group="billing", start="others/0.0@3")
        assert hub.groups() == []


async def _handle(_delivery: object) -> None:
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize("handler", [_handle, None, "charge"])
def test_a_handler_that_cannot_be_called_acknowledges_nothing(handler: Any) -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        topic = hub.create_topic("orders", partitions=1)
        topic.push(1)
        for way in ("run", "start"):
            with pytest.raises(tailrace.InvalidValue, match="handler"):
                getattr(topic.tail(group="billing"), way)(handler)
        with topic.tail(group="billing", until="end") as deliveries:
            assert [delivery.value for delivery in deliveries] == [1]


@pytest.mark.parametrize("until", ["end", None])
def test_a_filter_that_matches_no_topic_yet_says_so_once(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        with hub.tail("ord*", group="billing", until=until, limit=1) as deliveries:
            if until is None:
                hub.create_topic("orders", partitions=1).push(7)
            assert [delivery.value for delivery in deliveries] == ([] if until else [7])
        said = [each.getMessage() for each in caplog.records if "no topic" in each.message]
        assert said == ["group billing: no topic matches ord* yet"]
