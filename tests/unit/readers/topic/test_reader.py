"""The `topic` reader's options, its checks before a start, and the hub that it opens."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import tailrace
from tailrace import Pipeline, readers, writers
from tailrace.errors import ConfigError, Error, InvalidValue, UnknownHub, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.source.reader import Until
from tests.support.topics import all_messages, all_values
from tests.unit.readers.topic.read_topics import TopicSource, store_all, values_by_key

LOG, LETTERS = "lake.commits", "lake.dead-letters"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Hub]:
    with tailrace.open(tmp_path / "shop", sync="none") as hub:
        yield hub


@pytest.fixture
def orders(shop: Hub) -> Topic[Any]:
    return shop.create_topic("orders", partitions=4)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Hub]:
    with tailrace.open(tmp_path / "lake", sync="none") as hub:
        yield hub


def reader_of(hub: Hub, **options: Any) -> readers.TopicReader:
    return readers.topic("orders", hub=hub.backend.name, **options)


def test_a_topic_is_copied_and_followed_across_hubs(shop: Hub, orders: Topic[Any]) -> None:
    source = TopicSource(reader_of(shop), partitions=2)
    orders.push_many([(f"k{number % 5}", {"n": number}) for number in range(50)])
    orders.scale(6)
    orders.push_many([(f"k{number % 5}", {"n": number}) for number in range(50, 90)])
    source.finish()
    orders.scale(2)
    orders.push_many([(f"k{number % 5}", {"n": number}) for number in range(90, 99)])
    source.finish()
    assert values_by_key(source.log, "source.key") == values_by_key(orders)


@pytest.mark.parametrize("into", [None, "copy"])
def test_a_pipeline_reads_a_topic_of_its_own_hub(into: str | None, shop: Hub) -> None:
    orders = shop.create_topic("orders", partitions=4)
    copy = shop.create_topic("copy", partitions=6)
    orders.push_many([(f"k{number % 5}", {"n": number}) for number in range(50)])
    pipeline = Pipeline("lake", reader_of(shop, into=into), engine="direct")
    pipeline.write("crm", writers.topic("rows", create_partitions=1))
    report = pipeline.run(shop, once=True)
    assert report.rows_read == 50
    if into is None:
        assert len(all_values(shop.topic("rows"))) == 50
        assert all_messages(copy) == []
    else:
        assert all_messages(shop.topic(LOG), control=True) == []
        assert values_by_key(copy) == values_by_key(orders)


def test_a_session_closes_the_hub_that_it_opened_and_no_other(
    shop: Hub, orders: Topic[Any]
) -> None:
    session = reader_of(shop).open(Until.STOPPED)
    session.close()
    with pytest.raises(Error, match="closed"):
        session.splits()
    orders.push({"n": 1})
    assert len(all_messages(orders)) == 1


def test_the_settings_of_this_process_are_not_those_of_the_other_hub(
    shop: Hub, orders: Topic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_HUB_SYNC", "batch")
    monkeypatch.setenv("TAILRACE_HUB_AUTO_CREATE", "true")
    orders.push({"n": 1})
    assert len(reader_of(shop).check().documents) == 1
    with pytest.raises(UnknownTopic):
        readers.topic("order", hub=shop.backend.name).check()


def test_a_hub_that_is_removed_while_it_is_read_is_named(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "shop", sync="none") as shop:
        shop.create_topic("orders").push({"n": 1})
    source = TopicSource(readers.topic("orders", hub=str(tmp_path / "shop")))
    with source.begin(Until.STOPPED) as run:
        store_all(run)
        shutil.rmtree(tmp_path / "shop")
        with pytest.raises(Error, match=rf"'orders' of the hub {tmp_path / 'shop'} cannot be read"):
            store_all(run)


def test_a_preview_counts_messages_and_shows_the_first_five_documents(
    shop: Hub, orders: Topic[Any]
) -> None:
    orders.scale(8)
    assert reader_of(shop).check().documents == []
    orders.push_many([("k", b"no document"), *(("k", {"n": number}) for number in range(9))])
    preview = reader_of(shop, namespace="sales").check()
    assert preview.sentence == f"topic orders of {shop.backend.name}: 8 partitions, 10 messages"
    assert preview.documents == [("sales", {"n": number}) for number in range(5)]


def test_an_unknown_topic_is_answered_with_a_similar_name(shop: Hub, orders: Topic[Any]) -> None:
    reader = readers.topic("order", hub=shop.backend.name)
    for begin in (reader.check, lambda: reader.open(Until.NOW)):
        with pytest.raises(UnknownTopic, match=r"did you mean 'orders'"):
            begin()


def test_a_directory_without_a_hub_is_named_and_not_created(tmp_path: Path) -> None:
    reader = readers.topic("orders", hub=str(tmp_path / "none"))
    for begin in (reader.check, lambda: reader.open(Until.NOW)):
        with pytest.raises(UnknownHub, match="none"):
            begin()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", [bytes, str])
def test_a_topic_whose_values_are_no_json_is_only_mirrored(kind: type, shop: Hub) -> None:
    shop.create_topic("orders", kind, partitions=1).push(kind())
    reader = reader_of(shop)
    for begin in (reader.check, lambda: reader.open(Until.NOW)):
        with pytest.raises(InvalidValue, match=r"has values of .* set into"):
            begin()
    assert reader_of(shop, into="copy").check().documents == []


def test_a_topic_that_would_be_read_into_itself_is_refused(
    shop: Hub, orders: Topic[Any], lake: Hub, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    for hub in (shop.backend.name, str(tmp_path / "link"), f"{tmp_path}/lake/../shop"):
        mirror = readers.topic("orders", hub=hub, into="orders")
        with pytest.raises(InvalidValue, match="read into itself"):
            mirror.check_hub(shop, (LOG, LETTERS))
    lake.create_topic("orders")
    mirror.check_hub(lake, (LOG, LETTERS))
    for own in (LOG, LETTERS):
        with pytest.raises(InvalidValue, match="read into itself"):
            readers.topic(own, hub=shop.backend.name).check_hub(shop, (LOG, LETTERS))
        readers.topic(own, hub=shop.backend.name).check_hub(lake, (LOG, LETTERS))


def test_a_pipeline_that_would_read_its_own_commit_log_does_not_start(shop: Hub) -> None:
    lake = Pipeline("lake", readers.topic(LOG, hub=shop.backend.name), engine="direct")
    lake.write("crm", writers.topic("rows", create_partitions=1))
    with pytest.raises(ConfigError, match=r"reader: topic 'lake\.commits' would be read into"):
        lake.run(shop, once=True)
    assert shop.topics() == []


def test_a_missing_topic_is_to_be_created_in_the_hub_that_is_read(shop: Hub) -> None:
    create = re.escape(f"tailrace --hub {shop.backend.name} topic create orders --partitions 4")
    with pytest.raises(UnknownTopic, match=create):
        reader_of(shop).check()


def test_a_mirror_needs_a_topic_with_values_of_the_same_kind(
    shop: Hub, orders: Topic[Any], lake: Hub
) -> None:
    mirror = reader_of(shop, into="orders")
    with pytest.raises(UnknownTopic, match="no topic 'orders' in"):
        mirror.check_hub(lake, (LOG, LETTERS))
    lake.create_topic("orders", bytes)
    with pytest.raises(InvalidValue, match="values of application/json, and topic 'orders' of"):
        mirror.check_hub(lake, (LOG, LETTERS))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("topic", "a/b"),
        ("hub", ""),
        ("namespace", ""),
        ("into", "tailrace.audit"),
        ("into", "lake.commits"),
        ("into", "-x"),
    ],
)
def test_an_invalid_option_is_refused(option: str, value: str) -> None:
    options: dict[str, Any] = {"topic": "orders", "hub": "shop", option: value}
    with pytest.raises(Error, match=re.escape(repr(value))):
        readers.topic(**options)


def test_a_hub_is_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="a directory"):
        readers.topic("orders", hub="kafka://host").check()


def test_options_come_from_a_file_as_from_python() -> None:
    found = msgspec.convert({"topic": "orders", "hub": "shop"}, readers.TopicReader)
    assert found == readers.topic("orders", hub="shop")


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "readers.md").read_text()
    section = page.partition("\n## A topic\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE)
    hints = get_type_hints(readers.TopicReader, include_extras=True)
    fields = msgspec.structs.fields(readers.TopicReader)
    assert [(name, meaning) for name, _, meaning in shown] == [
        (field.name, hints[field.name].__metadata__[0].description) for field in fields
    ]
