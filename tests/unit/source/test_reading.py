"""The units of a `SplitReading`: their statuses, and what it tells of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.backend.contract import Change, Fence, raise_fence
from tailrace.errors import BackendUnavailable, Fenced
from tailrace.hub.topic import Topic
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.reader import Batch, Split, Until
from tailrace.source.reading import CHECK_S, SplitReading
from tailrace.source.split_state import fence_of, read_splits, table_of
from tailrace.source.unit_status import UnitStatus
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.unit.source.scripted_reader import Script, ScriptedReading, rows, scripted, values

FILES = "*files"

Opened = Callable[..., SplitReading]


class TheSystemBroke(Exception):
    """The scripted system does not answer."""


class BreakingOnce(ScriptedReading):
    """A reading whose split `b` fails once, before its first batch."""

    broke = False

    def read(self, split: Split, *rest: Any) -> Iterator[Batch | None]:
        batches = super().read(split, *rest)
        if split.id == "b" and not self.broke:
            self.broke = True
            raise TheSystemBroke
        yield from batches


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def epoch(backend: FaultyBackend) -> Fence:
    return raise_fence(backend.store, table_of("s"))


@pytest.fixture
def opened(
    log: Topic[Any], letters: Topic[Any], backend: FaultyBackend, epoch: Fence, clock: ManualClock
) -> Opened:
    """Return a reading of these units, of a source that has begun."""

    def open(reading: ScriptedReading, *units: str, until: Until = Until.NOW) -> SplitReading:
        made = SplitReading(SourceOutput("s", log, letters), reading, until, clock)
        made.store_first_splits(epoch)
        made.claim(units, epoch)
        return made

    return open


def bound(*split_ids: str) -> tuple[Split, ...]:
    return tuple(Split(each, bound="files") for each in split_ids)


def finish(reading: SplitReading) -> None:
    while reading.step():
        pass


def test_a_unit_is_being_read_until_each_split_is_finished(opened: Opened) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2, finished=True)]}
    reading = opened(scripted(script), "a")
    seen = [reading.units["a"]]
    reading.step()
    seen.append(reading.units["a"])
    reading.step()
    assert seen == [UnitStatus.READING, UnitStatus.READING]
    assert reading.take_changes().removed == {"a"}
    assert reading.units == {}


def test_a_unit_is_read_once_each_split_has_ended_in_a_run_until_now(opened: Opened) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1)], "b": []}
    reading = opened(scripted(script, *bound("a", "b")), FILES)
    finish(reading)
    assert reading.units == {FILES: UnitStatus.READ}
    assert reading.done


def test_a_split_that_is_opened_again_after_an_error_is_not_read_yet(
    opened: Opened, log: Topic[Any]
) -> None:
    # Otherwise the run ends, because the other split of the unit has ended.
    script: Script = {"a": [], "b": [Batch(rows("b1"), 1)]}
    reading = opened(BreakingOnce(script, bound("a", "b")), FILES)
    with pytest.raises(TheSystemBroke):
        finish(reading)
    assert reading.units == {FILES: UnitStatus.READING}
    assert not reading.done
    finish(reading)
    assert values(log) == ["b1"]
    assert reading.units == {FILES: UnitStatus.READ}


def test_a_unit_is_read_if_what_its_splits_wait_for_has_ended_without_being_finished(
    opened: Opened,
) -> None:
    follower = Split("b", follows=("a",), bound="files")
    reading = opened(scripted({"a": []}, *bound("a"), follower), FILES)
    finish(reading)
    assert reading.units == {FILES: UnitStatus.READ}


def test_what_another_task_has_finished_is_learned_before_a_run_until_now_ends(
    opened: Opened, log: Topic[Any], backend: FaultyBackend
) -> None:
    # `ended` has ended for good, so the unit counts as read until `w` may start.
    child = Split("w", follows=("x",), bound="files")
    script: Script = {
        "ended": [],
        "x": [Batch(None, 1, finished=True)],
        "w": [Batch(rows("w1"), 1)],
    }
    splits = (*bound("ended"), Split("x"), child)
    reading, other = opened(scripted(script, *splits), FILES), opened(scripted(script), "x")
    finish(reading)
    assert reading.units == {FILES: UnitStatus.READ}
    finish(other)
    reading.learn(read_splits(backend, "s"))
    assert reading.units == {FILES: UnitStatus.WAITING}
    finish(reading)
    assert values(log) == ["w1"]


def test_only_what_has_changed_is_told_and_once(opened: Opened) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)], "b": [None]}
    reading = opened(scripted(script), "a", "b")
    assert reading.take_changes().statuses == dict.fromkeys("ab", UnitStatus.READING)
    reading.step()
    assert not reading.take_changes()
    finish(reading)
    assert reading.take_changes().statuses == dict.fromkeys("ab", UnitStatus.READ)


def test_a_unit_that_was_released_is_told_no_more(opened: Opened) -> None:
    reading = opened(scripted({"a": [None], "b": [None]}), "a", "b")
    reading.release(["a"])
    assert reading.take_changes().statuses == {"b": UnitStatus.READING}
    assert reading.units == {"b": UnitStatus.READING}


def test_splits_of_others_are_looked_at_again_when_some_time_has_passed(
    opened: Opened, clock: ManualClock, log: Topic[Any]
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, finished=True)],
        "b": [Batch(rows("b1"), 1, finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    merged = Split("c", follows=("a", "b"))
    splits = (Split("a"), Split("b"), merged)
    others = opened(scripted(script, *splits), "a", "b", until=Until.STOPPED)
    reading = opened(scripted(script, *splits), "c", until=Until.STOPPED)
    others.step()
    clock.advance(CHECK_S)
    assert not reading.step()
    assert reading.units == {"c": UnitStatus.WAITING}
    others.step()
    clock.advance(CHECK_S)
    assert reading.step()
    assert values(log) == ["a1", "b1", "c1"]


def test_a_split_that_follows_many_splits_of_others_starts_when_all_are_finished(
    opened: Opened, clock: ManualClock, log: Topic[Any]
) -> None:
    parents = tuple(f"p{number:03d}" for number in range(250))
    script: Script = {each: [Batch(rows(each), 1, finished=True)] for each in parents}
    script["stream"] = [Batch(rows("stream"), 1)]
    splits = (*map(Split, parents), Split("stream", follows=parents))
    others = opened(scripted(script, *splits), *parents, until=Until.STOPPED)
    reading = opened(scripted(script, *splits), "stream", until=Until.STOPPED)
    for _ in parents[1:]:
        others.step()
    clock.advance(CHECK_S)
    assert not reading.step()
    finish(others)
    clock.advance(CHECK_S)
    assert reading.step()
    assert values(log) == [*parents, "stream"]


def test_a_newer_owner_takes_a_unit_at_the_next_batch(
    opened: Opened, backend: FaultyBackend
) -> None:
    reading = opened(scripted({"a": [Batch(rows("a1"), 1)], "b": [None]}), "a", "b")
    raise_fence(backend.store, fence_of("s", "a"))
    with pytest.raises(Fenced):
        finish(reading)
    assert reading.take_changes().lost == {"a"}
    assert list(reading.units) == ["b"]


def test_what_an_earlier_owner_stores_while_a_unit_is_taken_is_not_read_again(
    opened: Opened,
    backend: FaultyBackend,
    epoch: Fence,
    log: Topic[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script: Script = {"a": [Batch(rows(f"a{number}"), number) for number in (1, 2, 3)]}
    earlier, newer = opened(scripted(script), "a"), opened(scripted(script))
    earlier.step()
    commit = backend.store.commit

    def commit_after_a_batch(change: Change) -> int:
        monkeypatch.setattr(backend.store, "commit", commit)
        earlier.step()
        return commit(change)

    monkeypatch.setattr(backend.store, "commit", commit_after_a_batch)
    newer.claim(["a"], epoch)
    finish(newer)
    assert values(log) == ["a1", "a2", "a3"]


def test_a_unit_without_splits_is_not_owned(opened: Opened) -> None:
    reading = opened(scripted({"a": [None]}), "a", "removed")
    assert list(reading.units) == ["a"]


def test_units_are_taken_in_the_present_epoch_alone(
    opened: Opened, backend: FaultyBackend, epoch: Fence
) -> None:
    reading = opened(scripted({"a": [None]}))
    raise_fence(backend.store, table_of("s"))
    with pytest.raises(Fenced):
        reading.claim(["a"], epoch)
    assert reading.units == {}


def test_a_claim_while_the_log_does_not_answer_is_completed_by_the_next_step(
    opened: Opened, backend: FaultyBackend, log: Topic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}
    first = opened(scripted(script), "a")
    first.step()
    with monkeypatch.context() as patch:

        def fail(*_: object) -> Any:
            raise BackendUnavailable("the log does not answer", "try again")

        patch.setattr(backend.log, "bounds", fail)
        reading = opened(scripted(script), "a")
        assert reading.units == {"a": UnitStatus.WAITING}
    finish(reading)
    assert values(log) == ["a1", "a2"]


def test_a_claim_while_the_system_refuses_to_open_one_split_is_kept_and_others_are_read(
    opened: Opened, log: Topic[Any], clock: ManualClock
) -> None:
    class Refusing(ScriptedReading):
        refuses = True

        def read(self, split: Split, *rest: Any) -> Iterator[Batch | None]:
            if split.id == "a" and self.refuses:
                raise ConnectionError("refused")
            return super().read(split, *rest)

    script: Script = {name: [Batch(rows(name), 1, finished=True)] for name in "ab"}
    refusing = Refusing(script, (Split("a"), Split("b")))
    reading = opened(refusing, "a", "b", until=Until.STOPPED)
    assert reading.units == {"a": UnitStatus.READING, "b": UnitStatus.WAITING}
    with pytest.raises(ConnectionError):
        reading.step()
    finish(reading)
    assert values(log) == ["b"]
    assert reading.failing
    refusing.refuses = False
    clock.advance(1)
    finish(reading)
    assert values(log) == ["b", "a"]
