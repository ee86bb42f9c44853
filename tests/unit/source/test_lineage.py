"""Children of several parents, and what splits wait for."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import TableKey, Transaction
from tailrace.errors import InvalidValue
from tailrace.hub.topic import Topic
from tailrace.source.reader import Batch, Split
from tailrace.source.split_state import read_splits
from tests.support.faulty_backend import FaultyBackend
from tests.unit.source.scripted_reader import Begin, Script, finish, rows, scripted, values

MERGED = Split("c", follows=("a", "b"))


def test_a_child_that_two_parents_report_is_read_once(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(MERGED,), finished=True)],
        "b": [Batch(rows("b1"), 1, children=(MERGED,), finished=True)],
        "c": [Batch(rows("c1"), 1, finished=True)],
    }
    reading = scripted(script, Split("a"), Split("b"))
    finish(begin(reading))
    assert values(log) == ["a1", "b1", "c1"]
    assert reading.started == ["a", "b", "c"]


def test_a_second_report_leaves_a_child_that_is_under_way_where_it_is(
    begin: Begin, log: Topic[Any]
) -> None:
    # The child does not wait for `b`, which reports it late.
    child = Split("c", follows=("a",))
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(child,), finished=True)],
        "b": [None, None, Batch(rows("b1"), 3, children=(child,))],
        "c": [Batch(rows("c1"), 1), Batch(rows("c2"), 2), Batch(rows("c3"), 3)],
    }
    reading = scripted(script, Split("a"), Split("b"))
    finish(begin(reading))
    assert sorted(values(log)) == ["a1", "b1", "c1", "c2", "c3"]
    finish(begin(scripted(script)))
    assert sorted(values(log)) == ["a1", "b1", "c1", "c2", "c3"]


def test_a_split_waits_for_a_parent_that_nobody_has_met_yet(begin: Begin, log: Topic[Any]) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(MERGED,), finished=True)],
        "z": [
            Batch(rows("z1"), 1),
            Batch(rows("z2"), 2),
            Batch(rows("z3"), 3, children=(Split("b"),), finished=True),
        ],
        "b": [Batch(rows("b1"), 1, children=(MERGED,), finished=True)],
        "c": [Batch(rows("c1"), 1, finished=True)],
    }
    finish(begin(scripted(script, Split("a"), Split("z"))))
    assert values(log) == ["a1", "z1", "z2", "z3", "b1", "c1"]


def test_a_finished_split_is_kept_until_all_that_follow_it_are_finished(
    begin: Begin, backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(MERGED,), finished=True)],
        "b": [Batch(rows("b1"), 1), Batch(rows("b2"), 2, children=(MERGED,), finished=True)],
        "c": [Batch(rows("c1"), 1), Batch(rows("c2"), 2, finished=True)],
    }
    run = begin(scripted(script, Split("a"), Split("b")))
    seen = []
    while not run.done:
        run.step()
        seen.append(sorted(read_splits(backend, "s").states))
    assert seen[:4] == [["a"], ["a", "b"], ["a", "b"], ["a", "b", "c"]]
    run.close()
    finish(begin(scripted(script)))
    stored = read_splits(backend, "s")
    assert not stored.states
    assert not stored.reports


def test_a_split_is_given_the_final_positions_of_what_it_follows(begin: Begin) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), {"at": 7}, children=(MERGED,), finished=True)],
        "b": [Batch(rows("b1"), {"at": 8}, children=(MERGED,), finished=True)],
        "c": [Batch(rows("c1"), 1)],
    }
    first = scripted(script, Split("a"), Split("b"))
    finish(begin(first))
    assert first.followed["c"] == {"a": {"at": 7}, "b": {"at": 8}}
    again = scripted(script)
    finish(begin(again))
    assert again.followed["c"] == {"a": {"at": 7}, "b": {"at": 8}}


def test_a_split_that_ends_without_being_finished_holds_back_its_children(
    begin: Begin, log: Topic[Any]
) -> None:
    child = Split("c", follows=("a",))
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(child,))],
        "c": [Batch(rows("c1"), 1)],
    }
    finish(begin(scripted(script, Split("a"))))
    assert values(log) == ["a1"]


def test_a_child_can_be_bound_to_its_parent_alone(begin: Begin) -> None:
    script: Script = {"a": [Batch(None, 1, children=(Split("c", bound="other"),))]}
    run = begin(scripted(script, Split("a", bound="own")))
    with pytest.raises(InvalidValue, match="that of the split that reports it"):
        run.step()


@pytest.mark.parametrize("split", [Split(""), Split("*a"), Split("a\0b"), Split("a", bound="")])
def test_a_split_has_a_valid_name(begin: Begin, split: Split) -> None:
    with pytest.raises(InvalidValue, match="does not begin with"):
        begin(scripted({split.id: []}, split))


def test_the_table_of_an_earlier_version_is_read_on(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    old = b'{"split":{"id":"b","data":{},"follows":["a"]},"position":1,"rows":1,"finished":false}'
    backend.commit(Transaction(table={TableKey("source/s", b"b"): old}))
    finish(begin(scripted({"b": [Batch(rows("b1"), 1), Batch(rows("b2"), 2)]})))
    assert values(log) == ["b2"]


def test_a_finished_split_whose_parents_were_removed_waits_for_nothing(
    begin: Begin, log: Topic[Any], backend: FaultyBackend
) -> None:
    script: Script = {
        "a": [Batch(rows("a1"), 1, children=(Split("b", follows=("a",)),), finished=True)],
        "b": [Batch(rows("b1"), 1, children=(Split("c", follows=("b",)),), finished=True)],
        "c": [Batch(rows("c1"), 1, children=(Split("d", follows=("c",)),), finished=True)],
        "d": [Batch(rows("d1"), 1, children=(Split("e", follows=("d",)),), finished=True)],
        "e": [Batch(rows("e1"), 1)],
    }
    run = begin(scripted(script, Split("a")))
    while len(values(log)) < 2 or "a" in read_splits(backend, "s").states:
        run.step()
    assert values(log) == ["a1", "b1"]
    finish(begin(scripted(script)))
    assert values(log) == ["a1", "b1", "c1", "d1", "e1"]
