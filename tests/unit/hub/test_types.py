"""A topic keeps its type: what another process may open it with, and push to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace.backend.contract import Change
from tailrace.errors import EncodeError, TopicExists, TopicTypeMismatch
from tailrace.hub.hub import Hub
from tailrace.payload import ValueType
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tailrace.topic.composite import TOPICS
from tests.support.command_line import CommandLine
from tests.support.processes import ended_well, fork
from tests.support.topics import all_values, nothing_stored


class Order(msgspec.Struct):
    id: int
    total: float


class OrderWithNote(msgspec.Struct):
    id: int
    total: float
    note: str = ""


class OrderWithNumber(msgspec.Struct):
    id: int
    total: float
    note: int = 0


@dataclass
class OrderDataclass:
    id: int
    total: float


class Invoice(msgspec.Struct):
    id: str
    amount: float


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


@pytest.fixture
def hub(cli: CommandLine) -> Iterator[Hub]:
    with tailrace.open(cli.hub, sync="none") as hub:
        hub.create_topic("orders", Order, partitions=1)
        yield hub


@pytest.fixture
def other(hub: Hub, cli: CommandLine) -> Iterator[Hub]:
    """The same hub, opened again: it knows of the type only what is stored."""
    with tailrace.open(cli.hub) as other:
        yield other


def test_another_process_cannot_push_values_of_another_type(cli: CommandLine, hub: Hub) -> None:
    def push() -> None:
        with tailrace.open(cli.hub) as theirs, pytest.raises(EncodeError, match="'id' is str"):
            theirs.topic("orders").push({"id": "1", "total": 9.5})

    assert ended_well(fork(push))
    assert nothing_stored(hub.topic("orders"))


@pytest.mark.parametrize("kind", [None, dict])
@pytest.mark.parametrize(
    ("value", "difference"),
    [
        ({"id": 1}, "field 'total' is missing"),
        ({"id": 1, "total": 2.0, "note": "x"}, "field 'note' is added"),
        ({"id": "1", "total": 1}, "field 'id' is str, not int"),
        ({"id": 1, "total": None}, "field 'total' is None, not float"),
        (Invoice("1", 2.0), "field 'id' is str, not int"),
        ([1], "list"),
        (1, "int"),
        ("text", "not str"),
        (b"{}", "not bytes"),
    ],
    ids=str,
)
def test_a_push_of_another_type_is_refused_with_the_difference(
    other: Hub, kind: Any, value: Any, difference: str
) -> None:
    topic = other.topic("orders", kind)
    if kind is dict and not isinstance(value, dict):
        difference = f"takes dict, not {type(value).__name__}"
    for push in (
        lambda: topic.push(value),
        lambda: topic.push_many([("k", value)]),
        lambda: topic.producer().push(value),
    ):
        with pytest.raises(EncodeError) as caught:
            push()
        assert difference in str(caught.value)
        assert "nothing was written" in str(caught.value)
    assert nothing_stored(topic)


def test_a_transaction_refuses_another_type_too(other: Hub) -> None:
    with pytest.raises(EncodeError, match="field 'total' is missing"), other.transaction() as tx:
        tx.push("orders", {"id": 1})
    assert nothing_stored(other.topic("orders"))


def test_values_of_the_type_are_pushed_without_the_class(other: Hub) -> None:
    topic = other.topic("orders")
    topic.push({"id": 1, "total": 9.5})
    topic.push_many([(None, {"id": 2, "total": 3}), (None, Order(3, 4.0))])
    assert [each["id"] for each in all_values(other.topic("orders"))] == [1, 2, 3]
    assert all_values(other.topic("orders", Order))[0] == Order(1, 9.5)


@pytest.mark.parametrize("kind", [Order, OrderDataclass, OrderWithNote, dict, bytes, None])
def test_a_topic_is_opened_with_a_type_that_agrees(other: Hub, kind: Any) -> None:
    other.topic("orders", kind)


@pytest.mark.parametrize("kind", [Invoice, str, int, list[Order], OrderWithNote | None])
def test_a_topic_is_not_opened_with_a_type_that_cannot_agree(other: Hub, kind: Any) -> None:
    with pytest.raises(
        TopicTypeMismatch, match=r"topic 'orders' takes Order\(id: int, total: float\)"
    ):
        other.topic("orders", kind)
    with pytest.raises(TopicExists):
        other.create_topic("orders", kind, partitions=1, exist_ok=True)


def test_the_differences_of_a_type_are_named(other: Hub) -> None:
    with pytest.raises(TopicTypeMismatch) as caught:
        other.topic("orders", Invoice)
    assert str(caught.value) == (
        "topic 'orders' takes Order(id: int, total: float), not Invoice: field 'id' is str,"
        " not int; field 'total' is missing; field 'amount' is added without a default"
        " · valid: a type with the same fields; a field that one of them adds has a default"
        " · to open the topic anyway: any_type=True"
    )
    assert caught.value.differences == [
        "field 'id' is str, not int",
        "field 'total' is missing",
        "field 'amount' is added without a default",
    ]
    with pytest.raises(TopicExists) as exists:
        other.create_topic("orders", Invoice, partitions=1, exist_ok=True)
    assert exists.value.differences == [
        "its type is Order(id: int, total: float), not Invoice: field 'id' is str, not int;"
        " field 'total' is missing; field 'amount' is added without a default"
    ]


def test_raw_bytes_can_be_read_and_not_pushed(hub: Hub, other: Hub) -> None:
    receipt = hub.topic("orders", Order).push(Order(1, 9.5))
    raw = other.topic("orders", bytes)
    assert raw.read(*receipt[1:4]).value == b'{"id":1,"total":9.5}'
    with pytest.raises(EncodeError, match="takes Order"):
        raw.push(b'{"id":1,"total":9.5}')


def test_a_field_with_a_default_is_added_to_the_topics_type(hub: Hub, other: Hub) -> None:
    open_before = hub.topic("orders")
    first = other.topic("orders", OrderWithNote)
    first.push(OrderWithNote(1, 2.0, "new"))
    assert hub.topic("orders").view.definition.value_type == first.view.definition.value_type
    open_before.push({"id": 2, "total": 2.0, "note": "from an older handle"})
    hub.topic("orders", Order).push(Order(3, 2.0))
    assert [each.note for each in all_values(first)] == ["new", "from an older handle", ""]
    with pytest.raises(TopicTypeMismatch, match="field 'note' is int, not str"):
        hub.topic("orders", OrderWithNumber)


def test_an_older_type_does_not_take_fields_away(hub: Hub, other: Hub) -> None:
    other.topic("orders", OrderWithNote)
    version = hub.topic("orders").view.refresh().version
    hub.topic("orders", Order)
    hub.create_topic("orders", Order, partitions=1, exist_ok=True)
    assert hub.topic("orders").view.refresh().version == version


def test_a_hub_that_is_open_read_only_keeps_the_type_as_it_is(cli: CommandLine, hub: Hub) -> None:
    version = hub.topic("orders", Order).view.refresh().version
    hub.topic("orders", Order).push(Order(1, 2.0))
    with tailrace.open(cli.hub, mode="ro") as theirs:
        assert all_values(theirs.topic("orders", OrderWithNote)) == [OrderWithNote(1, 2.0)]
        with pytest.raises(TopicTypeMismatch):
            theirs.topic("orders", Invoice)
    assert hub.topic("orders").view.refresh().version == version


def test_a_topic_that_is_scaled_keeps_its_type(hub: Hub, other: Hub) -> None:
    hub.topic("orders").scale(4)
    with pytest.raises(TopicTypeMismatch):
        other.topic("orders", Invoice)


def test_any_type_turns_the_check_off(other: Hub) -> None:
    other.topic("orders", any_type=True).push({"anything": 1})
    other.topic("orders", Invoice, any_type=True).push(Invoice("1", 2.0))
    other.create_topic("orders", Invoice, partitions=1, exist_ok=True, any_type=True)
    free = other.create_topic("free", Order, any_type=True)
    assert free.view.definition.value_type is None
    with pytest.raises(EncodeError):
        free.push({"id": 1})  # type: ignore[arg-type]
    other.topic("free", Invoice).push(Invoice("1", 2.0))
    other.topic("free").push("text")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [(str, "text", b"x"), (str, "text", {"id": 1}), (bytes, b"x", "text"), (dict, {"a": 1}, [1])],
    ids=str,
)
def test_text_bytes_and_dicts_are_kept_too(other: Hub, kind: Any, good: Any, bad: Any) -> None:
    other.create_topic("t", kind)
    topic = other.topic("t")
    topic.push(good)
    with pytest.raises(EncodeError):
        topic.push(bad)
    assert all_values(topic) == [good]


def test_a_topic_without_a_type_takes_values_of_every_type(other: Hub) -> None:
    topic = other.create_topic("t")
    topic.push("text")
    other.topic("t", Order).push(Order(1, 2.0))
    other.topic("t", Invoice).push(Invoice("1", 2.0))


def test_a_topic_of_a_version_that_stored_no_type_works(hub: Hub, other: Hub) -> None:
    entry = hub.backend.store.get(TOPICS + "orders")
    assert entry is not None
    old = msgspec.json.decode(entry.value or b"")
    del old["value_type"]
    change = Change({}, {TOPICS + "orders": msgspec.json.encode(old)})
    hub.backend.store.commit(change)
    other.topic("orders", Invoice).push(Invoice("1", 2.0))
    other.create_topic("orders", Order, partitions=1, exist_ok=True).push(Order(1, 2.0))


def test_two_processes_that_add_different_fields_agree_on_the_first(hub: Hub, other: Hub) -> None:
    mine, theirs = hub.topic("orders"), other.topic("orders")
    first, second = (ValueType.of(k) for k in (OrderWithNote, OrderWithNumber))
    theirs.view.agree_on(first)
    with pytest.raises(TopicTypeMismatch, match="'note' is int, not str"):
        mine.view.agree_on(second)


def test_a_topic_that_is_created_by_its_first_use_keeps_its_type() -> None:
    hub = Hub.from_backend(MemoryBackend(), settings=HubSettings.of(auto_create=True))
    hub.topic("orders", Order)
    with pytest.raises(TopicTypeMismatch, match="takes Order"):
        hub.topic("orders", Invoice)


def test_topic_show_prints_the_type(cli: CommandLine, hub: Hub) -> None:
    hub.create_topic("free")
    assert "type          Order(id: int, total: float)" in cli.run("topic", "show", "orders").stdout
    assert "type          any" in cli.run("topic", "show", "free").stdout
    shown = cli.json("topic", "show", "orders")["type"]
    assert shown["name"] == "Order"
    assert shown["schema"]["$defs"]["Order"]["required"] == ["id", "total"]
    assert cli.json("topic", "show", "free")["type"] is None


def test_lines_are_checked_against_the_type(cli: CommandLine, hub: Hub) -> None:
    good = '{"id": 1, "total": 2}\n'
    refused = cli.run("push", "orders", stdin=good + '{"id": 1}\n', status=1)
    assert "line 2: topic 'orders' takes Order(id: int, total: float)" in refused.stderr
    assert "to push it anyway, add --any-type" in refused.stderr
    assert "any_type" not in refused.stderr
    assert "field 'total' is missing" in refused.stderr
    assert len(all_values(hub.topic("orders"))) == 1
    cli.run("push", "orders", '{"id": 1}', "--any-type")
    assert len(all_values(hub.topic("orders"))) == 2
