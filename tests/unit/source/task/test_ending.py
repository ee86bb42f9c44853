"""When all tasks have read everything: by rule, and as a task finds it."""

from __future__ import annotations

import pytest

from tailrace.source.task.actions import End, ReadTable
from tailrace.source.task.ending import is_quiet, is_read
from tailrace.source.task.events import TableRead, UnitsProgressed
from tailrace.source.task.machine import CHECK_END_S
from tests.unit.source.task.one_task import (
    FINISHED,
    READ,
    READING,
    WAITING,
    OneTask,
    Units,
    a_member,
    state,
    view,
)


@pytest.mark.parametrize(
    ("units", "share", "quiet"),
    [
        ((), {}, True),
        ({"x": READ, "y": WAITING, "z": FINISHED}, {}, True),
        ({"x": READING}, {}, False),
        ((), {"x": "b"}, False),
    ],
)
def test_tasks_are_quiet_if_none_reads_and_no_unit_moves(
    units: Units, share: dict[str, str], quiet: bool
) -> None:
    assert is_quiet({"a": view(units, share), "b": view({"z": READ})}) is quiet


@pytest.mark.parametrize(
    ("startable", "read"),
    [("", True), ("x", True), ("xy", False), ("xn", False), ("z", False)],
)
def test_everything_is_read_if_each_unit_that_may_start_was_read(
    startable: str, read: bool
) -> None:
    views = {"a": view({"x": READ, "y": WAITING}), "b": view({"z": FINISHED})}
    assert is_read(views, startable) is read


def ending(units: Units) -> OneTask:
    """Return a task that ends once everything was read, beside one that has read its unit."""
    return a_member(units, state("b", {"z": READ}), ends=True)


def table(*startable: str) -> TableRead:
    return TableRead(dict.fromkeys(startable, False), frozenset(startable))


def test_a_task_ends_when_all_tasks_have_read_everything() -> None:
    task = ending({"x": READ})
    task.handle(table("x", "z"))
    assert task.did(End)
    assert task.machine.ended


def test_a_task_does_not_end_while_another_reads() -> None:
    task = ending({"x": READ})
    task.hear(state("b", {"z": READING}, sequence=2))
    task.handle(table("x", "z"))
    assert not task.did(End)


def test_a_task_does_not_end_while_a_unit_is_not_listed() -> None:
    task = ending({"x": READ})
    task.handle(table("x", "z", "child"))
    assert not task.did(End)
    task.tick(CHECK_END_S)
    assert task.did(ReadTable)


def test_a_task_does_not_end_while_a_split_may_start_that_waits() -> None:
    task = ending({"x": WAITING})
    task.handle(table("x", "z"))
    assert not task.did(End)
    task.handle(UnitsProgressed({"x": READ}))
    task.tick(CHECK_END_S)
    task.handle(table("x", "z"))
    assert task.did(End)


def test_a_task_does_not_end_in_a_rebalance() -> None:
    task = ending({"x": READ})
    task.rebalance(2)
    task.handle(table("x", "z"))
    assert not task.did(End)


def test_a_task_without_an_end_does_not_look_for_it() -> None:
    task = a_member({"x": READ}, state("b", {"z": READ}))
    assert not task.did(ReadTable)
    assert task.machine.deadline() is None
