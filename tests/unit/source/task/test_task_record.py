"""What tasks store about themselves, so that a stop differs from a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.hub.hub import Hub
from tailrace.source.reader import Preview
from tailrace.source.source import Source
from tailrace.source.task.task_record import TAKEN_OVER_MS, TaskRecord, TaskRecorder, read_records
from tailrace.testing import ManualClock, MemoryBackend
from tests.support.sources.split_reader import SplitReader
from tests.support.sources.tasks import RunningTask, following
from tests.support.waiting import until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def records(hub: Hub) -> list[TaskRecord]:
    return list(read_records(hub.backend, "shop").values())


def recorder(hub: Hub, clock: ManualClock) -> TaskRecorder:
    return TaskRecorder(hub.backend, "shop", clock, follows=True)


def test_a_run_once_leaves_that_it_has_read_everything(hub: Hub) -> None:
    Source("shop", SplitReader()).run(hub, once=True)
    (record,) = records(hub)
    assert record.ended_ms is not None
    assert (record.caught_up, record.follows, record.error) == (True, False, None)


def test_a_task_that_is_stopped_leaves_whether_it_had_caught_up(hub: Hub, tmp_path: Path) -> None:
    with RunningTask(hub, following(tmp_path)) as task:
        (running,) = records(hub)
        assert (running.ended_ms, running.follows) == (None, True)
        until(lambda: task.progress[-1].caught_up)
    (record,) = records(hub)
    assert record.ended_ms is not None
    assert record.caught_up


def test_a_task_that_begins_removes_the_records_of_those_that_do_not_run(hub: Hub) -> None:
    clock = ManualClock()
    ended, killed, new = (recorder(hub, clock) for _ in range(3))
    ended.begin("ended", None)
    ended.end(clock.now_ms())
    killed.begin("killed", None)
    new.begin("new", "no file matches")
    assert read_records(hub.backend, "shop").keys() == {"new"}
    assert new.record.waiting == "no file matches"
    new.found_data()
    assert [each.waiting for each in records(hub)] == [None]


def test_a_task_that_ends_removes_the_records_of_those_that_it_took_over(hub: Hub) -> None:
    clock = ManualClock()
    early, late, last = (recorder(hub, clock) for _ in range(3))
    for name, each in (("early", early), ("late", late), ("last", last)):
        each.begin(name, None)
    early.end(clock.now_ms())
    clock.advance(TAKEN_OVER_MS / 1000)
    late.end(clock.now_ms())
    last.end(clock.now_ms())
    assert read_records(hub.backend, "shop").keys() == {"late", "last"}


def test_a_task_that_joins_again_keeps_one_record(hub: Hub) -> None:
    clock = ManualClock()
    task = recorder(hub, clock)
    task.begin("before", None)
    task.rename("before")
    task.rename("after")
    assert read_records(hub.backend, "shop").keys() == {"after"}


class Refused(SplitReader, frozen=True):
    """A reader whose source fails while it is read."""

    def check(self) -> Preview:
        raise ValueError("the API answered 500")


def test_an_error_is_left_for_a_source_that_has_run_before(hub: Hub) -> None:
    with pytest.raises(ValueError, match="answered 500"):
        Source("shop", Refused()).run(hub, once=True)
    assert records(hub) == []
    Source("shop", SplitReader()).run(hub, once=True)
    with pytest.raises(ValueError, match="answered 500"):
        Source("shop", Refused()).run(hub, once=True)
    assert [each.error for each in records(hub) if each.error] == [
        "ValueError: the API answered 500"
    ]
    Source("shop", SplitReader()).run(hub, once=True)
    assert [each.error for each in records(hub)] == [None]
