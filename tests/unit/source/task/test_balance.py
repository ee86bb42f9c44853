"""Which units should move to which task."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.source.task.actions import TaskView
from tailrace.source.task.balance import placed, surplus
from tests.unit.source.task.one_task import FINISHED, READ, WAITING, view

TASKS = "abcd"

COUNTS = st.dictionaries(st.sampled_from(TASKS), st.integers(0, 30), min_size=1)


def owning(counts: dict[str, int]) -> dict[str, TaskView]:
    """Return views of tasks with so many units."""
    return {task: view([f"{task}{n:02d}" for n in range(count)]) for task, count in counts.items()}


def settled(views: dict[str, TaskView]) -> tuple[dict[str, TaskView], int]:
    """Return the views once no task gives anything away, and the number of moves.

    The tasks decide one after the other, and each knows what those before it gave away.
    """
    moved = 0
    for _ in views:
        for task in sorted(views):
            moves = surplus(task, views)
            moved += len(moves)
            data = {unit: each for unit, each in views[task].data.items() if unit not in moves}
            views = {**views, task: TaskView(1, data, {**views[task].share, **moves})}
    shares = [pair for each in views.values() for pair in each.share.items()]
    after = {
        task: view([*each.data, *(unit for unit, target in shares if target == task)])
        for task, each in views.items()
    }
    return after, moved


@given(COUNTS)
def test_the_loads_differ_by_at_most_one_after_few_moves(counts: dict[str, int]) -> None:
    after, moved = settled(owning(counts))
    loads = [each.load for each in after.values()]
    assert sum(loads) == sum(counts.values())
    assert max(loads) - min(loads) <= 1
    assert all(not surplus(task, after) for task in after)
    even = -(-sum(counts.values()) // len(counts))
    assert moved <= sum(max(0, has - even) for has in counts.values()) + len(counts)


def test_a_difference_of_one_moves_nothing() -> None:
    assert surplus("a", owning({"a": 3, "b": 2})) == {}


def test_only_units_with_something_left_to_read_count() -> None:
    views = {
        "a": view({"a1": FINISHED, "a2": READ, "a3": WAITING}),
        "b": view({"b1": FINISHED}),
    }
    assert surplus("a", views) == {}


def test_a_unit_on_its_way_counts_for_its_target() -> None:
    views = {"a": view(["a1", "a2"], {"a3": "b", "a4": "b"}), "b": view(), "c": view(["c1"])}
    assert surplus("a", views) == {}
    assert len(surplus("a", {**views, "a": view(["a1", "a2", "a3", "a4"])})) == 2


def test_a_unit_that_two_tasks_list_counts_once() -> None:
    views = {"a": view(["x", "y", "a1"]), "b": view(["x", "y"])}
    assert surplus("a", views) == {}


def test_a_unit_that_was_taken_and_is_shared_still_counts_once() -> None:
    views = {"a": view(["a1", "a2"], {"x": "b"}), "b": view(["x"])}
    assert surplus("a", views) == {}


@given(COUNTS, st.integers(0, 20))
def test_units_without_an_owner_go_to_the_tasks_with_fewest(
    counts: dict[str, int], free: int
) -> None:
    views = owning(counts)
    units = [f"free{number}" for number in range(free)]
    targets = placed(units, views, views)
    assert targets.keys() <= set(units)
    loads = Counter(counts) + Counter(targets.values())
    low, extra = divmod(sum(counts.values()) + free, len(counts))
    given = set(targets.values())
    assert all(loads[task] <= low + bool(extra) for task in given)
    if max(counts.values()) <= low:
        assert targets.keys() == set(units)


def test_each_task_computes_the_same_targets() -> None:
    views = owning({"a": 9, "b": 7, "c": 0, "d": 0})
    shares = [*surplus("a", views).values(), *surplus("b", views).values()]
    assert Counter(shares) == {"c": 4, "d": 4}
