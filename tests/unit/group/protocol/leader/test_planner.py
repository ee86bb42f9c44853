"""The planner: even plans with the fewest moves, and no further moves after them."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from tailrace.group.protocol.leader.planner import plan

names = st.text("abcdef", min_size=1, max_size=3)


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[str, int], list[str], dict[str, str], set[str]]:
    loads = draw(st.dictionaries(names, st.integers(0, 9), max_size=20))
    borrowers = draw(st.lists(names, unique=True, min_size=1, max_size=6))
    owned = draw(st.lists(st.sampled_from(sorted(loads)), unique=True)) if loads else []
    owners = {unit: draw(st.sampled_from([*borrowers, "gone"])) for unit in owned}
    moving = set(draw(st.lists(st.sampled_from(owned), unique=True))) if owned else set()
    return loads, borrowers, owners, moving


@given(situations())
def test_counts_differ_by_at_most_one_after_all_moves(
    situation: tuple[dict[str, int], list[str], dict[str, str], set[str]],
) -> None:
    loads, borrowers, owners, moving = situation
    for _ in range(3):
        moves = plan(loads, borrowers, owners, moving)
        for unit in [*moves.revoked, *moving]:
            owners.pop(unit, None)
        owners |= dict(moves.granted)
        moving = set()
    counts = [sum(owner == name for owner in owners.values()) for name in borrowers]
    assert set(owners) == set(loads)
    assert max(counts) - min(counts) <= 1


@given(situations())
def test_an_executed_plan_leaves_nothing_to_move(
    situation: tuple[dict[str, int], list[str], dict[str, str], set[str]],
) -> None:
    loads, borrowers, owners, _ = situation
    for _ in range(2):
        moves = plan(loads, borrowers, owners)
        for unit in moves.revoked:
            del owners[unit]
        owners |= dict(moves.granted)
    assert plan(loads, borrowers, owners) == ((), ())


@given(situations())
def test_the_fewest_possible_units_move(
    situation: tuple[dict[str, int], list[str], dict[str, str], set[str]],
) -> None:
    loads, borrowers, owners, _ = situation
    counts = [sum(owners.get(unit) == name for unit in loads) for name in borrowers]
    low, extra = divmod(len(loads), len(borrowers))
    over = [count - low for count in counts if count > low]
    fewest = sum(over) - min(extra, len(over))
    assert len(plan(loads, borrowers, owners).revoked) == fewest


@given(situations())
def test_a_unit_that_is_being_moved_is_not_granted(
    situation: tuple[dict[str, int], list[str], dict[str, str], set[str]],
) -> None:
    loads, borrowers, owners, moving = situation
    moves = plan(loads, borrowers, owners, moving)
    assert not moving & {unit for unit, _ in moves.granted}
    assert not moving & set(moves.revoked)


def test_the_order_of_borrowers_does_not_matter() -> None:
    loads = {f"u{number}": number for number in range(10)}
    owners = {"u1": "b", "u2": "b", "u3": "b", "u4": "c"}
    assert plan(loads, ["a", "b", "c"], owners) == plan(loads, ["c", "b", "a"], owners)


def test_heavy_units_are_spread() -> None:
    loads = {"heavy1": 100, "heavy2": 100, "light1": 1, "light2": 1}
    owners = dict(plan(loads, ["a", "b"], {}).granted)
    assert {owners["heavy1"], owners["heavy2"]} == {"a", "b"}


def test_without_borrowers_there_is_no_plan() -> None:
    assert plan({"u": 1}, [], {}) == ((), ())


def test_a_thousand_units_over_a_hundred_borrowers_are_planned_at_once() -> None:
    loads = {f"orders/0.{number}": number % 7 for number in range(1000)}
    borrowers = [f"b{number}" for number in range(100)]
    durations = []
    for _ in range(5):  # A busy machine makes some slower, also by the time of the processor.
        began = time.thread_time()
        moves = plan(loads, borrowers, {})
        durations.append(time.thread_time() - began)
    assert min(durations) < 0.05
    assert len(moves.granted) == 1000


def test_a_free_unit_goes_to_the_borrower_with_the_least_load() -> None:
    loads = {"u1": 100, "u2": 1, "u3": 50, "u4": 10}
    moves = plan(loads, ["a", "b"], {"u1": "a", "u2": "b"})
    assert moves.granted == (("u3", "b"), ("u4", "a"))


def test_ties_are_decided_by_name_in_any_order_of_borrowers() -> None:
    loads = dict.fromkeys(("u1", "u2", "u3"), 0)
    assert plan(loads, ["b", "a"], {}) == plan(loads, ["a", "b"], {})
    owners = {"u1": "a", "u2": "b"}
    assert plan(loads, ["b", "a"], owners).granted == (("u3", "a"),)
