"""Runs of a source: every row once over crashes, and only the newest run writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from tailrace.backend.contract import FENCES, Change, Transaction
from tailrace.errors import BackendUnavailable, Error, Fenced, OutcomeUnknown
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.record import Record
from tailrace.message import Position
from tailrace.source.reader import Batch, Split
from tailrace.source.run import SourceRun
from tailrace.source.split_state import read_splits
from tests.support.faulty_backend import FaultyBackend, once, unknown
from tests.unit.source.scripted_reader import (
    Begin,
    Script,
    ScriptedReading,
    finish,
    rows,
    scripted,
    values,
)


def test_rows_of_all_splits_are_stored_in_turns(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {
        "a": [Batch(rows("a1", "a2"), 1), Batch(rows("a3"), 2)],
        "b": [None, Batch(rows("b1"), 2)],
    }
    run = begin(scripted(script))
    finish(run)
    assert values(log) == ["a1", "a2", "a3", "b1"]
    assert run.rows == 4
    assert run.bytes == sum(29 + 2 + 2 for _ in range(4))


def test_a_step_with_nothing_to_read_returns_false(begin: Begin) -> None:
    run = begin(scripted({"a": [None, Batch(rows("a1"), 2)]}))
    assert [run.step(), run.step(), run.done] == [False, True, False]
    assert [run.step(), run.done] == [False, True]


def test_the_next_run_continues_after_the_stored_rows(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {"a": [Batch(rows("a1", "a2"), 1), Batch(rows("a3"), 2)]}
    with begin(scripted(script)) as run:
        assert run.step()
    log.push("somebody else's")
    reading = scripted(script)
    finish(begin(reading))
    assert values(log) == ["a1", "a2", "somebody else's", "a3"]
    last = reading.lasts["a"]
    assert last is not None
    assert (last.key, last.value) == (b"ns", b"a2")


def test_the_last_record_of_a_split_is_found_among_records_of_others(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2), Batch(rows("a3"), 3)]}
    run = begin(scripted(script))
    run.step()
    log.push("between")
    run.step()
    reading = scripted(script)
    begin(reading)
    last = reading.lasts["a"]
    assert last is not None
    assert last.value == b"a2"
    stored = read_splits(backend, "s").states["a"]
    assert stored.last is not None
    assert Position.parse(stored.last).offset <= last.offset


def test_a_missing_last_record_is_none(begin: Begin, hub: Hub, backend: FaultyBackend) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}
    begin(scripted(script)).step()
    hub.delete_topic("log")
    reading = scripted(script)
    with pytest.raises(Error):
        finish(begin(reading))
    assert reading.lasts == {"a": None}


def test_a_child_split_starts_when_all_its_parents_are_finished(
    begin: Begin, log: Topic[Any]
) -> None:
    child = Split("c", follows=("a", "b"))
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(child,), finished=True)],
        "b": [Batch(rows("b1"), 1), Batch(rows("b2"), 2), Batch(None, 3, finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    reading = scripted(script, Split("a"), Split("b"))
    run = begin(reading)
    run.step()
    run.step()
    assert reading.started == ["a", "b"]
    finish(run)
    assert reading.started == ["a", "b", "c"]
    assert values(log) == ["a1", "b1", "b2", "c1"]


def test_lineage_holds_over_runs(begin: Begin, log: Topic[Any]) -> None:
    child = Split("c", follows=("a", "b"))
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(child,), finished=True)],
        "b": [Batch(rows("b1"), 1), Batch(rows("b2"), 2, finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    first = begin(scripted(script, Split("a"), Split("b")))
    first.step()
    reading = scripted(script)
    finish(begin(reading))
    assert reading.started == ["b", "c"]
    assert values(log) == ["a1", "b1", "b2", "c1"]


def test_all_first_splits_are_stored_before_the_first_batch(
    begin: Begin, backend: FaultyBackend, log: Topic[Any]
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1)], "b": [Batch(rows("b1"), 1)]}
    begin(scripted(script)).step()
    finish(begin(scripted(script, Split("other"))))
    assert values(log) == ["a1", "b1"]


def test_finished_splits_are_removed_and_the_source_does_not_begin_again(
    begin: Begin, backend: FaultyBackend, log: Topic[Any]
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, finished=True)],
        "b": [Batch(rows("b1"), 1, finished=True)],
    }
    run = begin(scripted(script))
    finish(run)
    stored = read_splits(backend, "s")
    assert (stored.begun, dict(stored.states), dict(stored.reports)) == (True, {}, {})
    assert not backend.store.scan(FENCES + "source/s/")
    finish(begin(scripted(script)))
    assert values(log) == ["a1", "b1"]


def test_an_older_run_is_fenced_at_its_next_batch(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2), Batch(rows("a3"), 3)]}
    older = begin(scripted(script))
    older.step()
    newer = begin(scripted(script))
    with pytest.raises(Fenced):
        older.step()
    newer.step()
    with pytest.raises(Fenced):
        older.step()
    finish(newer)
    assert values(log) == ["a1", "a2", "a3"]


def test_an_older_run_starts_no_child_split_of_a_newer_one(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(Split("c"),))],
        "c": [Batch(rows("c1"), 1), Batch(rows("c2"), 2)],
    }
    older = begin(scripted(script, Split("a")))
    newer: list[SourceRun] = []
    # The older one has stored the child, and not yet begun it, when the newer one comes.
    backend.after = once(lambda: newer.append(begin(scripted(script))))
    with pytest.raises(Fenced):
        older.step()
    finish(newer[0])
    assert values(log) == ["a1", "c1", "c2"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_of_unknown_outcome_is_stored_once(
    moment: str, begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2, finished=True)]}
    run = begin(scripted(script))
    setattr(backend, moment, once(unknown))
    finish(run)
    assert values(log) == ["a1", "a2"]
    assert run.rows == 2


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("raised", [False, True], ids=["fence as it was", "fence raised"])
def test_a_batch_of_unknown_outcome_is_stored_once_although_the_store_fails_too(
    moment: str, raised: bool, begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    commit = backend.store.commit

    def fail(change: Change) -> int:
        backend.store.commit = commit  # type: ignore[method-assign]
        if raised:
            commit(change)
        raise OutcomeUnknown("the store does not answer")

    def unknown_then_down() -> None:
        backend.store.commit = fail  # type: ignore[method-assign]
        unknown()

    run = begin(scripted({"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}))
    setattr(backend, moment, once(unknown_then_down))
    with pytest.raises(OutcomeUnknown):
        run.step()
    finish(run)
    assert values(log) == ["a1", "a2"]
    assert run.rows == 2


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_end_of_unknown_outcome_is_stored_once(
    moment: str, begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(Split("c"),), finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    run = begin(scripted(script, Split("a")))
    setattr(backend, moment, once(unknown))
    finish(run)
    assert values(log) == ["a1", "c1"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_children_of_an_unknown_outcome_are_stored_although_the_position_is_the_same(
    moment: str, begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(None, 0), Batch(None, 0, children=(Split("c"),)), Batch(None, 3)],
        "c": [Batch(rows("c1"), 1)],
    }
    run = begin(scripted(script, Split("a")))
    run.step()

    def fail_once(transaction: Transaction) -> None:
        setattr(backend, moment, lambda _: None)
        unknown()

    setattr(backend, moment, fail_once)
    finish(run)
    assert values(log) == ["c1"]


def test_a_batch_that_could_not_be_stored_is_stored_by_the_next_step(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    def refuse() -> None:
        raise BackendUnavailable("not now")

    run = begin(scripted({"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}))
    backend.before = once(refuse)
    with pytest.raises(BackendUnavailable):
        run.step()
    assert not run.done
    finish(run)
    assert values(log) == ["a1", "a2"]


def test_a_reader_that_raised_is_read_again_from_the_stored_position(
    begin: Begin, log: Topic[Any]
) -> None:
    class Failing(ScriptedReading):
        failures = 1

        def read(
            self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
        ) -> Iterator[Batch | None]:
            for number, batch in enumerate(self._script[split.id][position or 0 :]):
                if number == 1 and self.failures:
                    self.failures -= 1
                    raise OSError("the network is down")
                yield batch

    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2), Batch(rows("a3"), 3)]}
    run = begin(Failing(script, (Split("a"),)))
    run.step()
    with pytest.raises(OSError, match="network"):
        run.step()
    assert not run.done
    finish(run)
    assert values(log) == ["a1", "a2", "a3"]


def test_a_commit_log_that_is_switched_is_followed(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {"a": [Batch(rows("a1"), 1), Batch(rows("a2"), 2)]}
    run = begin(scripted(script))
    run.step()
    log.scale(2)
    finish(run)
    assert values(log) == ["a1", "a2"]
    assert [sum(info.ends) > 0 for info in log.storage_topics] == [True, True]


def test_a_split_is_stored_as_documented(
    begin: Begin, backend: FaultyBackend, log: Topic[Any]
) -> None:
    begin(scripted({"a": [Batch(rows("a1"), {"at": 7})]}, Split("a", {"x": 1}))).step()
    stored = backend.table.get("source/s", b"a")
    assert stored is not None
    found = msgspec.json.decode(stored)
    assert found["split"] == {"id": "a", "data": {"x": 1}}
    assert (found["position"], found["rows"], found["finished"]) == ({"at": 7}, 1, False)
    assert found["last"].startswith("log/0.0@")
