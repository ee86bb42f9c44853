"""Edges of a reading where offsets have gaps and times do not rise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.edges import Edge, Last, parse_edge
from tailrace.operations.tailing import span_between, tail
from tailrace.topic.edge import Moment


def values(hub: Hub, start: Edge, end: str = "latest") -> list[int]:
    topic = hub.topic("orders")
    span = span_between(topic, None, start, parse_edge(end))
    return [message.value for some in tail(topic, span) for message in some]


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
        assert values(hub, Last(count)) == list(range(11))[-count:]


@pytest.mark.parametrize("number", range(12))
def test_a_time_is_found_over_gaps(hub: Hub, number: int) -> None:
    with hub:
        assert values(hub, Moment(1000 * (number + 1))) == list(range(number, 11))


def test_what_is_pushed_after_the_span_was_made_lies_behind_its_end(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=4)
        topic.push(1, key="c7")
        span = span_between(topic, None, parse_edge("earliest"), parse_edge("latest"))
        topic.push(2, key="c7")
        topic.scale(12)
        topic.push(3, key="c7")
        assert [m.value for some in tail(topic, span) for m in some] == [1]


def test_the_newest_of_many_partitions_are_those_with_the_latest_times(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=12)
        for number in range(100):
            topic.push(number, key=f"c{number}", timestamp=number)
        assert sorted(values(hub, Last(10))) == list(range(90, 100))


def test_a_message_with_an_old_time_hides_no_newer_one_of_its_partition(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=1)
        for number, time_ms in enumerate([10, 50, 20, 30]):
            topic.push(number, timestamp=time_ms)
        assert values(hub, Last(2)) == [2, 3]


def test_one_partition_is_as_if_it_were_all(tmp_path: Path) -> None:
    with Hub.from_backend(EmbeddedBackend.open(tmp_path / "hub", sync="none")) as hub:
        topic = hub.create_topic("orders", partitions=1)
        for number in range(5):
            topic.push(number)
        topic.scale(2)
        for number in range(5, 10):
            topic.push(number)
        span = span_between(topic, Partition("orders", 0, 0), Last(2), parse_edge("latest"))
        assert [m.value for some in tail(topic, span) for m in some] == [3, 4]
