"""When a task tells the others what has changed in its state."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tailrace.source.task.actions import TaskView
from tailrace.source.task.published import UNIT_S, UNPACED_UNITS, Published
from tailrace.source.unit_status import UnitStatus

MANY = 20_000


def view(data: Iterable[str], **share: str) -> TaskView:
    return TaskView(1, dict.fromkeys(data, UnitStatus.READING), share)


def told(view: TaskView, units: int) -> Published:
    """Return a state that was told at time 0, in a source with so many units."""
    published = Published()
    published.told(view, 0.0, units)
    return published


def test_a_state_that_was_never_told_is_told() -> None:
    assert Published().is_due(view([]), 0.0)


def test_a_state_that_has_not_changed_is_not_told_again() -> None:
    published = told(view("ab"), 2)
    assert not published.is_due(view("ab"), 1.0)
    published.again()
    assert published.is_due(view("ab"), 1.0)


def test_the_progress_of_few_units_is_told_at_once() -> None:
    assert told(view("ab"), UNPACED_UNITS).is_due(view("a"), 0.0)


def test_the_progress_of_many_units_is_told_by_one_message_of_several() -> None:
    published = told(view("abc"), MANY)
    assert not published.is_due(view("ab"), 0.1)
    assert published.due_at == pytest.approx(MANY * UNIT_S)
    assert not published.is_due(view("a"), 0.2)
    assert published.is_due(view("a"), MANY * UNIT_S)
    published.told(view("a"), MANY * UNIT_S, MANY)
    assert published.due_at is None


def test_progress_that_was_taken_back_is_not_told() -> None:
    published = told(view("ab"), MANY)
    assert not published.is_due(view("a"), 0.1)
    assert not published.is_due(view("ab"), 10.0)
    assert published.due_at is None


def test_what_a_task_gives_away_is_told_at_once() -> None:
    assert told(view("ab"), MANY).is_due(view("a", b="other"), 0.0)


def test_what_a_task_takes_is_told_at_once() -> None:
    published = told(view("a"), MANY)
    published.hurry()
    assert published.is_due(view("ab"), 0.0)
    published.told(view("ab"), 0.0, MANY)
    assert not published.is_due(view("a"), 0.0)
