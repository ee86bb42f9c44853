"""The history of groups: lines written, and the newest read back."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tailrace.backend.contract import Backend
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.group import history
from tailrace.group.actions import Record
from tailrace.group.definition import TopicFilter, matching_topics
from tailrace.group.history import HISTORY, HistoryLine, append_history, line_of, read_history
from tailrace.hub import Hub


def line(number: int, group: str = "billing") -> HistoryLine:
    return HistoryLine(datetime.fromtimestamp(number, UTC), group, "granted", epoch=number)


def test_a_line_says_when_what_who_and_why(backend: Backend) -> None:
    record = Record("billing", "revoked", "orders/0.1", "till.b7~p1.1", 42, "to be shared")
    written = line_of(record, "process 1 on host", 1_495_000_000_123)
    append_history(backend, [written])
    assert read_history(backend, "billing") == [written]
    assert written.time == datetime(2017, 5, 17, 5, 46, 40, 123_000, UTC)
    assert (written.unit, written.consumer) == ("orders/0.1", "till.b7")
    assert written.process == "process 1 on host"
    assert (written.epoch, written.why) == (42, "to be shared")


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


def test_only_so_many_lines_are_looked_through(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LINES_MAX", 10)
    append_history(backend, [line(1, "rare")])
    append_history(backend, [line(number) for number in range(30)])
    assert read_history(backend, "rare") == []
    assert 8 <= len(read_history(backend, "billing")) <= 12


def test_history_goes_on_over_a_scaling_of_its_topic(backend: Backend, hub: Hub) -> None:
    append_history(backend, [line(1), line(1, "other")])
    hub.topic(HISTORY).scale(4)
    append_history(backend, [line(2), line(2, "other")])
    assert read_history(backend, "billing") == [line(1), line(2)]
    assert read_history(backend, "billing", 1) == [line(2)]


def test_history_is_found_behind_the_gap_that_a_new_beginning_leaves(tmp_path: Path) -> None:
    for number in range(3):
        with closing(EmbeddedBackend.open(tmp_path, sync="none", boot=f"boot {number}")) as backend:
            append_history(backend, [line(number)])
            assert read_history(backend, "billing") == [line(each) for each in range(number + 1)]
