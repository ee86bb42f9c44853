"""What a task knows of the others."""

from __future__ import annotations

from tailrace.source.task.other_tasks import OtherTasks
from tests.unit.source.task.one_task import FINISHED, READING, state, view


def others() -> OtherTasks:
    """Return the others of task `a`, `b` and `c`, in a new epoch."""
    known = OtherTasks("a")
    known.begin([state("a", "x"), state("b", "y"), state("c")])
    return known


def test_an_epoch_begins_with_the_states_of_the_others() -> None:
    known = others()
    assert known.members == {"a", "b", "c"}
    assert known.views == {"b": view("y"), "c": view()}
    assert known.units == 1
    assert known.listed("y")
    assert not known.listed("x")


def test_own_states_and_those_of_strangers_and_older_ones_are_not_learned() -> None:
    known = others()
    for told in (
        state("a", "z", sequence=9),
        state("d", "z", sequence=9),
        state("b", "z", sequence=1),
    ):
        assert known.update(told) is None
    assert known.views["b"] == view("y")


def test_the_ends_of_splits_are_noticed() -> None:
    known = others()
    ended = []
    for sequence, units in enumerate(
        [
            {"y": READING},
            {"y": READING, "z": READING},
            {"y": FINISHED, "z": READING},
            {"z": READING},
            {},
        ],
        2,
    ):
        learned = known.update(state("b", units, sequence=sequence))
        assert learned is not None
        ended.append(learned.ended)
    # The first one, because the state at the beginning of the epoch may be older; then y, then z.
    assert ended == [True, False, True, False, True]


def test_a_unit_that_is_given_away_has_not_ended() -> None:
    known = others()
    known.update(state("b", "y", sequence=2))
    learned = known.update(state("b", (), {"y": "c"}, sequence=3))
    assert learned is not None
    assert not learned.ended


def test_each_offer_is_made_once_until_it_is_taken_back() -> None:
    known = others()
    known.update(state("b", "y", {"u": "a", "v": "c", "w": "a"}, sequence=2))
    assert list(known.offers()) == ["u", "w"]
    assert list(known.offers()) == []
    known.update(state("b", "yu", {"w": "a"}, sequence=3))
    assert list(known.offers()) == []
    known.update(state("b", "y", {"u": "a", "w": "a"}, sequence=4))
    assert list(known.offers()) == ["u"]


def test_an_epoch_makes_all_offers_again() -> None:
    known = others()
    known.update(state("b", "y", {"u": "a"}, sequence=2))
    assert list(known.offers()) == ["u"]
    known.begin([state("a"), state("b", "y", {"u": "a"})])
    assert list(known.offers()) == ["u"]
