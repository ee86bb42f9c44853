"""Offset specs where offsets have gaps and times do not rise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.topic.tail import range_between, tail
from tailrace.topic.offset_spec import AtTime, Newest, OffsetSpec, parse_offset_spec


def values(hub: Hub, start: OffsetSpec, end: str = "latest") -> list[int]:
    topic = hub.topic("orders")
    wanted = range_between(topic, None, start, parse_offset_spec(end))
    return [message.value for some in tail(topic, wanted) for message in some]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """One partition with 0 to 4, then a restart of the machine, 5 to 9, another, and 10."""
    for boot, numbers in (("a", range(5)), ("b", range(5, 10)), ("c", range(10, 11))):
        backend = EmbeddedBackend.open(tmp_path / "hub", sync="none", boot=boot)
        with Hub.from_backend(backend) as opened:
            topic = opened.create_topic("orders", partitions=1, exist_ok=True)
            for number in numbers:
                topic.push(number, timestamp=1000 * (number + 1))
    return Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", boot="d"))


@pytest.mark.parametrize("count", range(1, 13))
def test_the_newest_are_counted_over_gaps(hub: Hub, count: int) -> None:
    with hub:
        assert hub.topic("orders").storage_topics[0].ends[0] > 2**32
        assert values(hub, Newest(count)) == list(range(11))[-count:]


@pytest.mark.parametrize("number", range(12))
def test_a_time_is_found_over_gaps(hub: Hub, number: int) -> None:
    with hub:
        assert values(hub, AtTime(1000 * (number + 1))) == list(range(number, 11))


def test_messages_pushed_after_the_span_was_resolved_are_outside_it(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=4)
        topic.push(1, key="c7")
        wanted = range_between(
            topic, None, parse_offset_spec("earliest"), parse_offset_spec("latest")
        )
        topic.push(2, key="c7")
        topic.scale(12)
        topic.push(3, key="c7")
        assert [m.value for some in tail(topic, wanted) for m in some] == [1]


def test_the_newest_of_many_partitions_are_those_with_the_latest_times(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=12)
        for number in range(100):
            topic.push(number, key=f"c{number}", timestamp=number)
        assert sorted(values(hub, Newest(10))) == list(range(90, 100))


def test_a_message_with_an_old_time_hides_no_newer_one_of_its_partition(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=1)
        for number, time_ms in enumerate([10, 50, 20, 30]):
            topic.push(number, timestamp=time_ms)
        assert values(hub, Newest(2)) == [2, 3]


def test_the_newest_messages_of_one_partition_are_found_alone(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=1)
        for number in range(5):
            topic.push(number)
        topic.scale(2)
        for number in range(5, 10):
            topic.push(number)
        wanted = range_between(
            topic, Partition("orders", 0, 0), Newest(2), parse_offset_spec("latest")
        )
        assert [m.value for some in tail(topic, wanted) for m in some] == [3, 4]
