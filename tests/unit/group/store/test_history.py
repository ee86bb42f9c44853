"""The history of groups: lines written, and the newest read back."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tailrace.backend.contract import Backend
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.group.protocol.actions import WriteHistory
from tailrace.group.store import history
from tailrace.group.store.definition import TopicFilter, matching_topics
from tailrace.group.store.history import HISTORY, HistoryLine, append_history, line_of, read_history
from tailrace.hub.hub import Hub
from tailrace.log.columns import records_of


def line(number: int, group: str = "billing") -> HistoryLine:
    return HistoryLine(datetime.fromtimestamp(number, UTC), group, "granted", epoch=number)


def test_a_line_has_time_event_consumer_and_reason(backend: Backend) -> None:
    record = WriteHistory("billing", "revoked", "orders/0.1", "till.b7~p1.1", 42, "to be shared")
    written = line_of(record, "process 1 on host", 1_495_000_000_123)
    append_history(backend, [written])
    assert read_history(backend, "billing") == [written]
    assert written.time == datetime(2017, 5, 17, 5, 46, 40, 123_000, UTC)
    assert (written.partition, written.consumer) == ("orders/0.1", "till.b7")
    assert written.process == "process 1 on host"
    assert (written.epoch, written.why) == (42, "to be shared")


def test_the_partition_of_a_line_is_stored_under_the_name_unit(backend: Backend, hub: Hub) -> None:
    """Readers of the history topic know the field by that name."""
    written = HistoryLine(datetime.fromtimestamp(1, UTC), "billing", "granted", "orders/0.1")
    append_history(backend, [written])
    topic = hub.topic(HISTORY)
    (stored,) = [
        record.value
        for number in range(topic.view.definition.shape.partitions)
        for batch in topic.batches(0, number)
        for record in records_of(batch)
    ]
    assert stored == (
        b'{"time":"1970-01-01T00:00:01Z","group":"billing","what":"granted","unit":"orders/0.1"}'
    )


def test_a_hub_without_history_has_none(backend: Backend) -> None:
    append_history(backend, [])
    assert read_history(backend, "billing") == []
    assert matching_topics(backend, TopicFilter(HISTORY)) == {}


def test_the_newest_lines_of_one_group_come_newest_last(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_STEP", 3)
    for number in range(0, 40, 4):
        append_history(backend, [line(number), line(number + 1), line(number, "other")])
        append_history(backend, [line(number + 2), line(number + 3)])
    assert read_history(backend, "billing", 5) == [line(number) for number in range(35, 40)]
    assert read_history(backend, "billing") == [line(number) for number in range(40)]
    assert read_history(backend, "other", 1) == [line(36, "other")]
    assert read_history(backend, "billing", 0) == []


def test_the_number_of_lines_read_is_bounded(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LINES_MAX", 10)
    append_history(backend, [line(1, "rare")])
    append_history(backend, [line(number) for number in range(30)])
    assert read_history(backend, "rare") == []
    assert 8 <= len(read_history(backend, "billing")) <= 12


def test_history_continues_over_a_scaling_of_its_topic(backend: Backend, hub: Hub) -> None:
    append_history(backend, [line(1), line(1, "other")])
    hub.topic(HISTORY).scale(4)
    append_history(backend, [line(2), line(2, "other")])
    assert read_history(backend, "billing") == [line(1), line(2)]
    assert read_history(backend, "billing", 1) == [line(2)]


def test_history_is_found_behind_the_gaps_of_restarts(tmp_path: Path) -> None:
    for number in range(3):
        with closing(EmbeddedBackend.open(tmp_path, sync="none", boot=f"boot {number}")) as backend:
            append_history(backend, [line(number)])
            assert read_history(backend, "billing") == [line(each) for each in range(number + 1)]
