"""Hubs: creating, opening and deleting topics, and the names that users import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace.errors import (
    HubClosed,
    InvalidName,
    InvalidValue,
    TopicExists,
    UnknownTopic,
)
from tailrace.hub.hub import Hub
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tailrace.topic.internal_topics import open_internal_topic

MODULES = ("aio", "functions", "readers", "spark", "testing", "writers")


class Order(msgspec.Struct):
    id: int


@pytest.fixture
def hub() -> Hub:
    return Hub.from_backend(MemoryBackend())


def test_a_created_topic_has_four_partitions_by_default(hub: Hub) -> None:
    assert hub.create_topic("a").storage_topics[0].partitions == 4
    assert hub.create_topic("b", partitions=12).storage_topics[0].partitions == 12
    assert hub.topics() == ["a", "b"]


@pytest.mark.parametrize("partitions", [0, -1, 5, 10**9, True])
def test_a_partition_count_out_of_range_creates_nothing(hub: Hub, partitions: int) -> None:
    with pytest.raises(InvalidValue, match="partitions"):
        hub.create_topic("a", partitions=partitions)
    assert hub.topics() == []


def test_any_count_option_allows_five_partitions(hub: Hub) -> None:
    assert len(hub.create_topic("a", partitions=5, any_count=True).storage_topics[0].ends) == 5


@pytest.mark.parametrize("name", ["a/b", "..", "a\0b", "a b", "x" * 300, "", ".a"])
def test_a_name_that_is_not_valid_is_refused_everywhere(hub: Hub, name: str) -> None:
    for call in (hub.create_topic, hub.topic, hub.delete_topic):
        with pytest.raises(InvalidName, match="topic name"):
            call(name)
    assert hub.topics() == []


@pytest.mark.parametrize("name", ["-a", "--help", "tailrace.mine", "tailrace.audit"])
def test_a_name_that_commands_cannot_address_creates_no_topic(hub: Hub, name: str) -> None:
    with pytest.raises(InvalidName, match=r"do not start with . or -|which Tailrace reserves"):
        hub.create_topic(name)
    assert hub.topics() == []


def test_an_existing_topic_with_such_a_name_can_be_used_and_deleted(hub: Hub) -> None:
    open_internal_topic(hub.backend, "-old", now_ms=0)
    hub.topic("-old").push(1)
    assert hub.create_topic("-old", partitions=1, exist_ok=True).read(0, 0, 0).value == 1
    hub.delete_topic("-old")
    assert hub.topics() == []


def test_an_unknown_router_is_refused_with_the_known_routers(hub: Hub) -> None:
    with pytest.raises(InvalidValue, match="shard-consistent, range"):
        hub.create_topic("a", router="crc32")
    assert hub.topics() == []


def test_a_type_that_cannot_be_decoded_is_refused(hub: Hub) -> None:
    class Opaque:
        def __init__(self, x: Any) -> None:
            self.x = x

    topic = hub.create_topic("a", Opaque)
    with pytest.raises(tailrace.EncodeError):
        topic.push(Opaque(1))


def test_a_topic_name_cannot_be_created_twice(hub: Hub) -> None:
    hub.create_topic("a", Order)
    with pytest.raises(TopicExists, match="exist_ok=True"):
        hub.create_topic("a", Order)


def test_the_same_definition_may_be_created_again(hub: Hub) -> None:
    first = hub.create_topic("a", Order, exist_ok=True)
    first.push(Order(1))
    first.scale(12)
    for partitions in (4, 12):
        again = hub.create_topic("a", Order, partitions=partitions, exist_ok=True)
        assert again.produce_pointer == 1


def test_another_definition_of_one_topic_is_refused_with_the_differences(hub: Hub) -> None:
    hub.create_topic("a", Order)
    with pytest.raises(TopicExists, match="another definition") as caught:
        hub.create_topic("a", bytes, partitions=8, router="range", exist_ok=True)
    assert caught.value.differences == [
        "it has 4 partitions, not 8",
        "its router is shard-consistent, not range",
        "its content type is application/json, not application/octet-stream",
    ]


def test_an_unknown_topic_is_answered_with_similar_names(hub: Hub) -> None:
    hub.create_topic("orders")
    with pytest.raises(UnknownTopic, match="did you mean 'orders'") as caught:
        hub.topic("order")
    assert caught.value.known == ["orders"]
    with pytest.raises(UnknownTopic):
        hub.delete_topic("order")


def test_auto_create_makes_an_unknown_topic_with_one_partition() -> None:
    settings = HubSettings.of(auto_create=True)
    hub = Hub.from_backend(MemoryBackend(), settings=settings)
    assert hub.topic("a", Order).push(Order(1)).partition == 0
    assert hub.topic("a").storage_topics[0].partitions == 1


def test_a_topic_may_be_opened_with_another_type(hub: Hub) -> None:
    receipt = hub.create_topic("a", Order).push(Order(1))
    assert hub.topic("a").read(*receipt[1:4]).value == {"id": 1}
    assert hub.topic("a", bytes).read(*receipt[1:4]).value == b'{"id":1}'


def test_a_deleted_topic_is_removed_with_its_records_and_dedup_ids(hub: Hub) -> None:
    topic = hub.create_topic("a", Order)
    topic.push(Order(1), dedup_id="x")
    topic.scale(12)
    identity = topic.view.definition.identity
    hub.delete_topic("a")
    assert hub.topics() == []
    assert hub.backend.table.scan(f"dedup/a/{identity}") == []
    anew = hub.create_topic("a", Order)
    assert [info.ends for info in anew.storage_topics] == [[0, 0, 0, 0]]
    assert anew.push(Order(2), dedup_id="x").offset == 0
    assert [info.partitions for info in anew.storage_topics] == [4]


def test_a_topic_object_of_a_deleted_topic_does_not_push_to_a_new_one(hub: Hub) -> None:
    held = hub.create_topic("a", bytes, partitions=4)
    producer, named = held.producer(), held.producer(name="n")
    hub.delete_topic("a")
    anew = hub.create_topic("a", bytes, partitions=12)
    for pending in (producer.push(b"stale", key="k"), named.push(b"stale", key="k")):
        assert isinstance(pending.exception(10), UnknownTopic)
    with pytest.raises(UnknownTopic):
        held.push(b"stale", key="k")
    with pytest.raises(UnknownTopic):
        held.push(b"stale", key="k", dedup_id="x")
    with pytest.raises(UnknownTopic):
        held.push_many([("k", b"stale")])
    with pytest.raises(UnknownTopic), hub.transaction() as tx:
        tx.push(held, b"stale", key="k")
    assert [info.ends for info in anew.storage_topics] == [[0] * 12]


def test_closing_a_hub_flushes_its_producers(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        producer = hub.create_topic("a", bytes).producer(linger="1h")
        pending = [producer.push(b"%d" % number) for number in range(100)]
    assert {each.result(0).topic for each in pending} == {"a"}
    with tailrace.open(tmp_path / "hub") as hub:
        assert sum(hub.topic("a").storage_topics[0].ends) == 100


def test_closing_a_hub_raises_the_error_of_a_failed_producer(hub: Hub) -> None:
    producer = hub.create_topic("a", bytes).producer(linger="1h")
    producer.push(b"lost")
    hub.delete_topic("a")
    with pytest.raises(UnknownTopic):
        hub.close()
    with pytest.raises(HubClosed):
        hub.topics()


def test_a_closed_hub_refuses_every_call(hub: Hub) -> None:
    topic = hub.create_topic("a", Order)
    with hub:
        pass
    hub.close()
    for call in (lambda: topic.push(Order(1)), hub.topics):
        with pytest.raises(HubClosed):
            call()


def test_open_makes_a_hub_and_finds_it_again(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        receipt = hub.create_topic("orders", Order).push(Order(1), key="c7")
    with tailrace.open(tmp_path / "hub") as hub:
        assert hub.topic("orders", Order).read(*receipt[1:4]).value == Order(1)


def test_open_uses_the_environment_without_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_HUB", str(tmp_path / "mine"))
    monkeypatch.setenv("TAILRACE_HUB__SYNC", "none")
    monkeypatch.setenv("TAILRACE_HUB__MESSAGE_BYTES_MAX", "10")
    with tailrace.open() as hub:
        assert Path(hub.backend.name) == tmp_path / "mine"
        with pytest.raises(tailrace.MessageTooLarge):
            hub.create_topic("t", bytes).push(b"x" * 11)


def test_open_of_an_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="a directory"):
        tailrace.open("kafka://b1:9092")
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_there_and_listed_in_order() -> None:
    assert tailrace.__all__ == sorted(tailrace.__all__)
    assert set(dir(tailrace)) == {*tailrace.__all__, *MODULES}
    for name in tailrace.__all__:
        assert getattr(tailrace, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tailrace.nothing


@pytest.mark.parametrize("name", MODULES)
def test_the_public_modules_need_no_import_of_their_own(name: str) -> None:
    program = f"import tailrace; assert tailrace.{name}.__name__ == 'tailrace.{name}'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_error_is_public() -> None:
    assert set(tailrace.errors.__all__) <= set(tailrace.__all__)


def test_importing_tailrace_loads_nothing_heavy() -> None:
    heavy = "pyarrow", "numpy", "apsw", "msgspec"
    program = f"import sys, tailrace; sys.exit(any(name in sys.modules for name in {heavy}))"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
