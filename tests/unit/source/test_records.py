"""The partitions of rows and bad records of a source, and their counts."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Transaction
from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.settings import HubSettings
from tailrace.source.reader import BadRecord, Batch, Until
from tailrace.source.run import SourceRun
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.support.topics import all_messages
from tests.unit.source.scripted_reader import (
    Begin,
    ScriptedReader,
    finish,
    rows,
    scripted,
    values,
)


@pytest.mark.parametrize("identities", [None, [b"one", b"two", b"three"]])
def test_rows_go_to_the_partition_of_their_identity_or_else_of_their_namespace(
    identities: list[bytes] | None, hub: Hub, letters: Topic[Any]
) -> None:
    log = hub.create_topic("wide", partitions=4)
    batch = Batch(rows("1", "2", "3"), 1, identities=identities)
    reader = ScriptedReader(scripted({"a": [batch]}))
    finish(SourceRun(hub, "s", reader, log, letters, Until.NOW, ManualClock()))
    keys = identities or [b"ns"] * 3
    found = {
        value: number
        for number in range(4)
        for records in log.batches(0, number)
        for value in records["value"].to_pylist()
    }
    assert found == {str(n).encode(): log.route(key) for n, key in enumerate(keys, 1)}


def test_a_record_with_a_reserved_header_fails_its_source_and_is_not_stored(
    begin: Begin, log: Topic[Any]
) -> None:
    record = Record(0, 1000, Mode.COPY, Op.INSERT, b"ns", {"tailrace.for": b"lake/crm"}, b"{}")
    run = begin(scripted({"a": [Batch(from_records([record]), 1)]}))
    with pytest.raises(InvalidValue, match=r"'tailrace\.for' is reserved"):
        finish(run)
    assert values(log) == []


def test_bad_records_go_to_the_dead_letters_in_the_same_commit(
    begin: Begin, log: Topic[Any], letters: Topic[Any], backend: FaultyBackend
) -> None:
    bad = BadRecord("ns", "in/a.jsonl:17", "it is not JSON", b"{oops")
    seen: list[Transaction] = []
    backend.after = seen.append
    run = begin(scripted({"a": [Batch(rows("a1"), 1, bad=[bad])]}))
    finish(run)
    assert run.bad == 1
    [message] = all_messages(letters)
    assert (message.key, message.data) == ("ns", b"{oops")
    assert message.headers == {
        "tailrace.error": b"it is not JSON",
        "tailrace.where": b"in/a.jsonl:17",
        "tailrace.reader": b"s",
    }
    assert [len(each.appends) for each in seen] == [0, 2]


def test_a_bad_record_beyond_the_limit_is_cut_and_marked_as_cut(
    backend: FaultyBackend, log: Topic[Any]
) -> None:
    hub = Hub.from_backend(backend, settings=HubSettings(message_bytes_max=1000))
    letters = hub.create_topic("small", partitions=1)
    bad = BadRecord("ns", "x:1", "too long", b"y" * 5000)
    reader = ScriptedReader(scripted({"a": [Batch(None, 1, bad=[bad])]}))
    finish(SourceRun(hub, "s", reader, log, letters, Until.NOW))
    [message] = all_messages(letters)
    assert message.headers["tailrace.cut"] == b"5000"
    assert 800 < len(message.data) < 1000
    assert set(message.data) == {ord("y")}


def test_a_row_beyond_the_limit_of_the_commit_log_is_a_dead_letter(
    backend: FaultyBackend, letters: Topic[Any]
) -> None:
    hub = Hub.from_backend(backend, settings=HubSettings(message_bytes_max=100))
    log = hub.create_topic("small", partitions=1)
    batch = Batch(rows("a", "b" * 101, "c" * 100), 1)
    run = SourceRun(hub, "s", ScriptedReader(scripted({"a": [batch]})), log, letters, Until.NOW)
    finish(run)
    assert values(log) == ["a", "c" * 100]
    assert values(letters) == ["b" * 101]
    assert (run.rows, run.bad) == (2, 1)


def test_control_records_of_a_source_are_not_counted_as_rows(begin: Begin) -> None:
    complete = from_records([Record(0, 1, Mode.COMPLETE, Op.NOOP, b"ns", None, b'{"rows":1}')])
    run = begin(scripted({"a": [Batch(rows("a1"), 1), Batch(complete, 2)]}))
    finish(run)
    assert run.rows == 1
