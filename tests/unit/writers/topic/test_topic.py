"""The topic writer: exactly once over repeated attempts, keys, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace import writers
from tailrace.errors import ConfigError, Fenced, InvalidName, InvalidValue, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import records_of
from tailrace.message import Mode, Op, Partition
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Writer
from tailrace.settings import HubSettings
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.topics import push_for
from tests.unit.writers.contract import (
    FENCE,
    STREAM,
    WRITER,
    Driver,
    Seen,
    WriterContract,
    record,
    rows,
    rows_of,
)


def stored(hub: Hub, topic: str = "orders") -> list[Record]:
    """All records of a topic, as a reader gets them."""
    reader = hub.topic(topic).reader(control=True)
    found: list[Record] = []
    while reads := reader.poll():
        found += [each for _, batch in reads for each in records_of(batch)]
    return found


def documents(hub: Hub, topic: str = "orders") -> list[dict[str, Any]]:
    return [msgspec.json.decode(each.value) for each in stored(hub, topic)]


class TestTopic(WriterContract):
    """A topic of the pipeline's own hub."""

    @pytest.fixture
    def backend(self) -> FaultyBackend:
        return FaultyBackend(gap_every=3)

    @pytest.fixture
    def hub(self, backend: FaultyBackend) -> Hub:
        return Hub.from_backend(backend)

    @pytest.fixture
    def target(self, hub: Hub) -> Hub:
        return hub

    @pytest.fixture
    def writer(self, target: Hub) -> Writer:
        target.create_topic("orders", partitions=4)
        return writers.topic("orders", key="id")

    @pytest.fixture
    def seen(self, target: Hub) -> Seen:
        return lambda: documents(target)

    def test_an_older_attempt_is_refused_from_the_moment_a_newer_one_opens(
        self, driver: Driver, seen: Seen
    ) -> None:
        older, newer = (driver.writer.open(driver.attempt(0, 10)) for _ in range(2))
        with pytest.raises(Fenced):
            older.write(rows(0, 10), Offsets(0, 10))
        assert seen() == []
        newer.write(rows(0, 10), Offsets(0, 10))
        assert len(seen()) == 10

    def test_an_attempt_that_opens_after_a_newer_one_is_refused(
        self, driver: Driver, seen: Seen
    ) -> None:
        older, newer = driver.attempt(0, 10), driver.attempt(0, 10)
        session = driver.writer.open(newer)
        with pytest.raises(Fenced):
            driver.writer.open(older)
        session.write(rows(0, 10), Offsets(0, 10))
        assert len(seen()) == 10

    def test_attempts_of_an_older_driver_are_refused_however_high_their_number(
        self, driver: Driver, seen: Seen
    ) -> None:
        driver.number = 1000
        paused = driver.writer.open(driver.attempt(0, 10))
        late = driver.attempt(0, 10)
        Driver(driver.hub, driver.writer).deliver(0, 10)
        with pytest.raises(Fenced):
            paused.write(rows(0, 10), Offsets(0, 10))
        with pytest.raises(Fenced):
            driver.writer.open(late)
        assert len(seen()) == 10

    def test_attempts_at_other_streams_do_not_disturb_each_other(self, driver: Driver) -> None:
        one = driver.writer.open(driver.attempt(0, 10))
        other = STREAM.replace("0.0", "0.1")
        two = driver.writer.open(driver.attempt(0, 10, stream=other))
        one.write(rows(0, 10), Offsets(0, 10))
        two.write(rows(0, 10), Offsets(0, 10))

    def test_a_newer_attempt_knows_the_rows_of_the_older_one(self, driver: Driver) -> None:
        older = driver.writer.open(driver.attempt(0, 10))
        older.write(rows(0, 4), Offsets(0, 4))
        assert driver.writer.open(driver.attempt(2, 10)).applied() == [(2, 4)]

    def test_a_rewind_shuts_out_the_attempt_under_way(self, driver: Driver) -> None:
        session = driver.writer.open(driver.attempt(0, 20))
        session.write(rows(0, 10), Offsets(0, 10))
        driver.writer.forget(WRITER, STREAM, 5, driver.hub)
        with pytest.raises(Fenced):
            session.write(rows(10, 20), Offsets(10, 20))
        assert driver.applied() == list(range(5))

    def test_offsets_without_rows_are_applied_at_the_end(self, driver: Driver) -> None:
        session = driver.writer.open(driver.attempt(0, 20))
        session.write(rows(0, 0), Offsets(0, 5))
        session.write(rows(5, 10), Offsets(5, 10))
        session.write(rows(0, 0), Offsets(10, 20))
        assert driver.applied() == list(range(10))
        session.finish()
        assert driver.applied() == list(range(20))


class TestTopicElsewhere(TestTopic):
    """A topic of another hub, in a directory."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Hub:
        return tailrace.open(tmp_path / "other", sync="none")

    @pytest.fixture
    def writer(self, target: Hub) -> Writer:
        target.create_topic("orders", partitions=4)
        return writers.topic("orders", key="id", hub=target.backend.name)


@pytest.fixture
def backend() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def hub(backend: FaultyBackend) -> Hub:
    return Hub.from_backend(backend)


def driver(hub: Hub, **options: Any) -> Driver:
    return Driver(hub, writers.topic("orders", **{"create_partitions": 4, **options}))


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unknown_outcome_is_looked_up_and_nothing_is_written_twice(
    hub: Hub, backend: FaultyBackend, when: str
) -> None:
    d = driver(hub)
    d.deliver(0, 5)
    setattr(backend, when, once(unknown))
    d.deliver(5, 10)
    assert sorted(each["id"] for each in documents(hub)) == list(range(10))
    assert d.applied() == list(range(10))


def test_a_commit_that_fails_leaves_no_offset_behind(hub: Hub, backend: FaultyBackend) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    d = driver(hub)
    session = d.writer.open(d.attempt(0, 10))
    backend.before = once(broken)
    with pytest.raises(ZeroDivisionError):
        session.write(rows(0, 5), Offsets(0, 5))
    session.write(rows(5, 10), Offsets(5, 10))
    assert d.applied() == list(range(5, 10))
    assert sorted(each["id"] for each in documents(hub)) == list(range(5, 10))


def test_records_follow_the_produce_pointer(hub: Hub) -> None:
    d = driver(hub)
    session = d.writer.open(d.attempt(0, 20))
    session.write(rows(0, 10), Offsets(0, 10))
    hub.topic("orders").scale(8)
    session.write(rows(10, 20), Offsets(10, 20))
    assert sorted(each["id"] for each in documents(hub)) == list(range(20))


def test_a_record_keeps_all_its_fields(hub: Hub) -> None:
    given = [
        record(0, mode=Mode.COPY, headers={"source": b"web"}),
        record(1, b'{"a": 1.0}', op=Op.DELETE),
        record(2, b"", mode=Mode.COMPLETE, op=Op.NOOP),
    ]
    driver(hub).write(rows_of(given), 0, 3)
    assert [each._replace(offset=0) for each in stored(hub)] == [
        each._replace(offset=0) for each in given
    ]


@pytest.mark.parametrize("key", ["namespace", "identity"])
def test_a_record_that_was_redelivered_to_the_writer_is_for_every_consumer_of_the_topic(
    hub: Hub, key: str
) -> None:
    lake = tailrace.Pipeline("lake", CountingReader(1), engine="direct")
    lake.write("copies", writers.topic("orders", key=key, create_partitions=1))
    lake.run(hub, once=True)
    push_for(hub.topic("lake.commits"), "lake/copies", b'{"n": 7}')
    push_for(hub.topic("lake.commits"), "lake/crm", b'{"n": 8}')
    lake.run(hub, once=True)
    delivered = hub.topic("orders").tail(group="billing", until="end")
    assert [each.data for each in delivered] == [b'{"n":0}', b'{"n": 7}']


def test_the_writer_receives_control_records_only_if_it_is_told_to() -> None:
    assert not writers.topic("orders").wants_controls
    assert writers.topic("orders", control=True).wants_controls


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("identity", [b'{"id":0}', None, b'{"id":0}', None, None, None, None]),
        ("customer.name", [b"ann", None, b"ann", None, b"bob", None, None]),
        ("customer.id", [b"7", None, None, None, None, None, None]),
        ("none", [None] * 7),
        ("namespace", [b"orders"] * 7),
    ],
)
def test_every_record_gets_the_configured_key_also_deletes_and_control_records(
    hub: Hub, key: str, expected: list[bytes | None]
) -> None:
    given = [
        record(0, {"customer": {"id": 7, "name": "ann"}}, headers={"identity": b'{"id":0}'}),
        record(1, {"customer": 5}),
        record(2, {"customer": {"name": "ann"}}, op=Op.DELETE, headers={"identity": b'{"id":0}'}),
        record(3, b"", mode=Mode.COMPLETE, op=Op.NOOP),
        record(4, {"customer": {"name": "bob"}}, op=Op.COMMAND),
        record(5, b'{"customer":"\xff"}', op=Op.COMMAND),
        record(6, b"no JSON", op=Op.COMMAND),
    ]
    driver(hub, key=key, create_partitions=1, control=True).write(rows_of(given), 0, 7)
    found = stored(hub)
    assert [each.key for each in found] == expected
    if key != "namespace":
        assert [(each.headers or {})["namespace"] for each in found] == [b"orders"] * 7
    assert (found[0].headers or {})["identity"] == b'{"id":0}'


@pytest.mark.parametrize("key", ["namespace", "none", "customer.id"])
def test_a_topic_with_an_order_makes_the_keys_and_refuses_records_without_it(
    hub: Hub, key: str
) -> None:
    hub.create_topic("orders", partitions=1, order_by="customer.id")
    given = [
        record(0, {"customer": {"id": 7}}),
        record(1, {"customer": 5}),
        record(2, {"customer": {"id": "c8"}}, op=Op.DELETE),
        record(3, b"", mode=Mode.COMPLETE, op=Op.NOOP),
    ]
    refused = driver(hub, key=key, control=True).write(rows_of(given), 0, 4)
    assert [each.offset for each in refused] == [1]
    assert "ordered by customer.id: Expected `object`" in refused[0].error
    found = stored(hub)
    assert [each.key for each in found] == [b"7", b"c8", None]
    assert [(each.headers or {})["namespace"] for each in found] == [b"orders"] * 3


@pytest.mark.parametrize("key", ["identity", "customer.name"])
def test_a_key_that_is_not_the_order_of_the_topic_is_refused(hub: Hub, key: str) -> None:
    hub.create_topic("orders", partitions=1, order_by="customer.id")
    with pytest.raises(ConfigError, match=f"ordered by customer.id, and the key .* is {key}"):
        driver(hub, key=key).write(rows(0, 1), 0, 1)


def test_many_records_keep_the_order_of_their_keys(hub: Hub) -> None:
    d = driver(hub, key="customer")
    for start in range(0, 3000, 1000):
        d.deliver(start, start + 1000)
    by_key: dict[str, list[int]] = {}
    for each in documents(hub):
        by_key.setdefault(each["customer"], []).append(each["id"])
    assert len(by_key) == 7
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_record_that_the_topic_refuses_is_named_and_the_others_are_written() -> None:
    hub = Hub.from_backend(FaultyBackend(), settings=HubSettings(message_bytes_max=100))
    d = driver(hub)
    long = {"id": 0, "text": "x" * 100}
    given = [record(n, long if n in (1, 6) else None) for n in range(10)]
    failures = d.write(rows_of(given), 0, 10)
    assert [failure.offset for failure in failures] == [1, 6]
    assert "100" in failures[0].error
    assert len(documents(hub)) == 8
    assert d.applied() == [0, 2, 3, 4, 5, 7, 8, 9]


def test_a_batch_of_refused_records_names_all(hub: Hub) -> None:
    d = driver(hub, key="id")
    failures = d.write(rows_of(record(n, b"no json") for n in range(3)), 0, 3)
    assert [failure.offset for failure in failures] == [0, 1, 2]
    assert d.applied() == []


def test_a_topic_is_created_only_on_request(hub: Hub) -> None:
    with pytest.raises(UnknownTopic):
        driver(hub, create_partitions=None).deliver(0, 1)
    driver(hub, create_partitions=6).deliver(0, 1)
    assert len(hub.topic("orders").storage_topics[0].ends) == 6


def test_a_pipeline_may_not_write_into_its_own_commit_log(hub: Hub) -> None:
    log = hub.create_topic("orders", partitions=1)
    d = driver(hub)
    stream = f"{log.view.definition.identity}/0.0"
    with pytest.raises(ConfigError, match="commit log"):
        d.writer.open(d.attempt(0, 1, stream=stream))


def test_invalid_options_are_refused_by_the_check(tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        writers.topic("a/b")
    with pytest.raises(InvalidValue, match=r"customer\.id"):
        writers.topic("orders", key="a..b")
    with pytest.raises(tailrace.Error, match="no hub"):
        writers.topic("orders", hub=str(tmp_path / "nowhere")).check()
    with tailrace.open(tmp_path / "hub", sync="none"):
        with pytest.raises(UnknownTopic):
            writers.topic("orders", hub=str(tmp_path / "hub")).check()
        there = writers.topic("orders", hub=str(tmp_path / "hub"), create_partitions=1)
        assert "will be created" in there.check()


def test_the_fence_belongs_to_the_writer_and_the_stream(hub: Hub) -> None:
    driver(hub).deliver(0, 1)
    fences = [entry.key for entry in hub.backend.store.scan("fence/")]
    assert fences == [f"fence/applied/{WRITER}/{STREAM}", f"fence/{FENCE}"]
    assert str(Partition.parse(STREAM)) == STREAM
