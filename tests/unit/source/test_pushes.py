"""Messages that a source pushes to topics: stored with its rows, or dead letters."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailrace.backend.contract import Transaction
from tailrace.errors import BackendUnavailable, Error
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.settings import HubSettings
from tailrace.source.reader import Batch, Push, Until
from tailrace.source.run import SourceRun
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.support.topics import all_messages
from tests.unit.source.scripted_reader import (
    Begin,
    ScriptedReader,
    finish,
    rows,
    scripted,
    values,
)


def messages(*pairs: tuple[str, str], headers: dict[str, bytes] | None = None) -> pa.RecordBatch:
    """Return messages with these keys and values."""
    return from_records(
        [
            Record(0, 1000, Mode.SYNC, Op.UPDATE, key.encode(), headers, value.encode())
            for key, value in pairs
        ]
    )


def pushing(topic: str, *batches: pa.RecordBatch) -> Any:
    """Return a reading that pushes each of these in a batch of its own."""
    script = [
        Batch(None, number, pushes=(Push(topic, records),))
        for number, records in enumerate(batches, start=1)
    ]
    return scripted({"a": [*script]})


@pytest.fixture
def orders(hub: Hub) -> Topic[Any]:
    return hub.create_topic("orders", partitions=4)


def test_messages_are_stored_by_their_keys_in_the_transaction_of_the_rows(
    begin: Begin, orders: Topic[Any], log: Topic[Any], backend: FaultyBackend
) -> None:
    seen: list[Transaction] = []
    backend.after = seen.append
    push = Push("orders", messages(("k1", "1"), ("k2", "2"), headers={"h": b"x"}))
    run = begin(scripted({"a": [Batch(rows("row"), 1, pushes=(push,))]}))
    finish(run)
    found = {message.value: message for message in all_messages(orders)}
    assert {value: each.partition for value, each in found.items()} == {
        1: orders.route("k1"),
        2: orders.route("k2"),
    }
    first = found[1]
    assert (first.key, first.headers, first.mode, first.op) == (
        "k1",
        {"h": b"x"},
        Mode.SYNC,
        Op.UPDATE,
    )
    assert values(log) == ["row"]
    assert (run.rows, run.bad) == (3, 0)
    assert len([each for each in seen if each.appends]) == 1


def test_a_topic_that_is_scaled_is_followed(begin: Begin, orders: Topic[Any]) -> None:
    run = begin(pushing("orders", *(messages(("k", str(number))) for number in range(3))))
    run.step()
    orders.scale(12)
    finish(run)
    assert [message.value for message in all_messages(orders)] == [0, 1, 2]
    assert [sum(info.ends) > 0 for info in orders.storage_topics] == [True, True]


def test_messages_for_a_topic_that_does_not_exist_are_dead_letters(
    begin: Begin, hub: Hub, letters: Topic[Any]
) -> None:
    run = begin(pushing("gone", messages(("k", "1")), messages(("k", "2")), messages(("k", "3"))))
    run.step()
    hub.create_topic("gone", partitions=1)
    run.step()
    hub.delete_topic("gone")
    finish(run)
    first, second = all_messages(letters)
    assert (first.key, first.data, second.data) == ("gone", b"1", b"3")
    assert first.headers["tailrace.error"] == b"there is no topic 'gone' in memory"
    assert first.headers["tailrace.where"] == (
        b"a message for topic 'gone' with key 'k', before position 1"
    )
    assert (run.rows, run.bad) == (1, 2)


def test_a_topic_that_was_created_again_has_its_new_order(
    begin: Begin, hub: Hub, letters: Topic[Any]
) -> None:
    hub.create_topic("orders", partitions=1)
    run = begin(pushing("orders", messages(("k", '{"a":1}')), messages(("7", '{"c":7}'))))
    run.step()
    hub.delete_topic("orders")
    hub.create_topic("orders", partitions=1, order_by="c")
    finish(run)
    assert [message.value for message in all_messages(hub.topic("orders"))] == [{"c": 7}]
    assert all_messages(letters) == []


def test_messages_that_a_topic_does_not_take_are_dead_letters_and_the_others_keep_their_order(
    backend: FaultyBackend, log: Topic[Any], letters: Topic[Any]
) -> None:
    hub = Hub.from_backend(backend, settings=HubSettings(message_bytes_max=400))
    log, letters = hub.topic("log"), hub.topic("letters")
    orders = hub.create_topic("orders", partitions=1, order_by="id")
    large = '{"id":"k","x":"' + "y" * 400 + '"}'
    given = ['{"id":"k","n":1}', large, '{"n":2}', '{"id":"k","n":3}', '{"id":"k","n":4}']
    reading = pushing("orders", messages(*(("k", value) for value in given)))
    run = SourceRun(hub, "s", ScriptedReader(reading), log, letters, Until.NOW, ManualClock())
    finish(run)
    assert [message.value["n"] for message in all_messages(orders)] == [1, 3, 4]
    found = [message.headers["tailrace.error"].decode() for message in all_messages(letters)]
    assert "message" in found[0]
    assert "400" in found[0]
    assert "id" in found[1]
    assert (run.rows, run.bad) == (3, 2)


def test_a_reserved_header_of_a_message_fails_its_source(begin: Begin, orders: Topic[Any]) -> None:
    given = messages(("k", "1"), headers={"tailrace.for": b"billing"})
    with pytest.raises(Error, match=r"'tailrace\.for' is reserved"):
        finish(begin(pushing("orders", given)))
    assert all_messages(orders) == []


@pytest.mark.parametrize(
    "topic",
    ["tailrace.retry-queue.mailer", "tailrace.audit", "lake.commits", "log", "letters"],
)
def test_a_topic_that_users_may_not_push_to_fails_the_source(begin: Begin, topic: str) -> None:
    with pytest.raises(Error, match=topic):
        finish(begin(pushing(topic, messages(("k", "1")))))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_messages_of_an_unknown_outcome_are_stored_once(
    moment: str, begin: Begin, orders: Topic[Any], backend: FaultyBackend
) -> None:
    run = begin(pushing("orders", messages(("k", "1")), messages(("k", "2"))))
    setattr(backend, moment, once(unknown))
    finish(run)
    assert [message.value for message in all_messages(orders)] == [1, 2]


def test_messages_are_read_again_if_the_hub_does_not_answer_when_their_topic_is_looked_up(
    begin: Begin, orders: Topic[Any], backend: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(pushing("orders", *(messages(("k", str(number))) for number in range(3))))
    run.step()
    with monkeypatch.context() as patch:

        def fail(key: str) -> Any:
            raise BackendUnavailable("the store does not answer", "try again")

        patch.setattr(backend.store, "get", fail)
        with pytest.raises(BackendUnavailable):
            run.step()
    assert not run.done
    finish(run)
    assert [message.value for message in all_messages(orders)] == [0, 1, 2]


def test_identities_in_a_column_order_rows_beside_one_that_is_too_large(
    backend: FaultyBackend, log: Topic[Any], letters: Topic[Any]
) -> None:
    hub = Hub.from_backend(backend, settings=HubSettings(message_bytes_max=10))
    wide = hub.create_topic("wide", partitions=4)
    identities = pa.array([b"one", b"two", b"three"], pa.binary())
    batch = Batch(rows("1", "2" * 11, "3"), 1, identities=identities)
    reader = ScriptedReader(scripted({"a": [batch]}))
    finish(SourceRun(hub, "s", reader, wide, letters, Until.NOW, ManualClock()))
    found = {message.data: message.partition for message in all_messages(wide)}
    assert found == {b"1": wide.route("one"), b"3": wide.route("three")}
