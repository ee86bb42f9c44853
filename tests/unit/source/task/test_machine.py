"""A task of a source: epochs, shares, children, and when it joins again."""

from __future__ import annotations

import pytest

from tailrace.source.task.actions import (
    CheckOwned,
    Claim,
    Publish,
    Rejoin,
    Release,
    RemoveUnneeded,
)
from tailrace.source.task.events import (
    Claimed,
    ClaimRefused,
    Heard,
    MembershipLost,
    MembersRebalanced,
    StillOwned,
    TaskEvent,
    UnitsProgressed,
)
from tailrace.source.task.machine import TaskMachine
from tailrace.source.task.messages import MessageType, RebalanceEvent
from tailrace.source.task.published import UNIT_S
from tests.unit.source.task.one_task import (
    FINISHED,
    READING,
    OneTask,
    a_member,
    message,
    state,
    view,
)

# Epochs.


def test_a_task_answers_a_rebalance_at_once_with_its_state_and_works_on() -> None:
    task = a_member("xy", state("b", "z"))
    task.rebalance(2)
    [answer] = task.did(Publish)
    assert (answer.type, answer.generation) == (MessageType.REBALANCE_ANSWER, 2)
    assert answer.states["a"].data == {"x": READING, "y": READING}
    assert task.did(Release) == []
    assert task.machine.rebalancing


def test_a_task_answers_each_rebalance_once() -> None:
    task = a_member()
    task.rebalance(2)
    assert task.rebalance(2) == []
    assert task.rebalance(1) == []


def test_a_task_that_joins_does_not_answer_events_without_it() -> None:
    task = OneTask()
    assert task.rebalance(1, "bc") == []
    task.rebalance(2, "abc")
    assert [each.type for each in task.did(Publish)] == [MessageType.REBALANCE_ANSWER]


def test_an_epoch_begins_with_the_states_of_all_members() -> None:
    task = OneTask()
    task.begin(3, state("a"), state("b", "x"))
    assert task.machine.epoch is not None
    assert task.machine.epoch.generation == 3
    assert task.machine.members == {"a", "b"}
    assert not task.machine.rebalancing
    assert task.told == view(sequence=1)


def test_an_epoch_is_learned_from_its_states_that_are_written_again() -> None:
    task = OneTask()
    again = message(MessageType.UPDATE_EPOCH, 3, state("b", "x"), state("a"), sender="b")
    task.handle(Heard(again))
    assert task.machine.members == {"a", "b"}
    assert task.machine.others.views == {"b": view("x")}


def test_states_that_are_written_again_are_learned_in_their_epoch() -> None:
    task = a_member()
    again = message(MessageType.UPDATE_EPOCH, 1, state("b", "x", sequence=2), state("a"))
    task.handle(Heard(again))
    assert task.machine.others.views == {"b": view("x", sequence=2)}


def test_an_epoch_that_is_not_newer_is_ignored() -> None:
    task = a_member()
    task.begin(2, state("a"), state("c"))
    task.begin(1, state("a"), state("b"))
    assert task.machine.members == {"a", "c"}


def test_messages_of_an_earlier_epoch_are_ignored() -> None:
    task = a_member()
    task.begin(2, state("a"), state("b"))
    task.hear(state("b", "x", {"y": "a"}, sequence=9), generation=1)
    assert task.did(Claim) == []
    assert task.machine.others.views == {"b": view()}


def test_messages_of_a_task_that_is_no_member_are_ignored() -> None:
    task = a_member()
    task.hear(state("c", (), {"y": "a"}))
    assert task.actions == []


def test_an_older_state_of_a_task_is_ignored() -> None:
    task = a_member()
    task.hear(state("b", "xy", sequence=3))
    task.hear(state("b", "x", sequence=2))
    assert task.machine.others.views == {"b": view("xy", sequence=3)}


# Joining again.


@pytest.mark.parametrize(
    "event",
    [
        MembersRebalanced(RebalanceEvent(2, ("b", "c"), "b")),
        Heard(message(MessageType.NEW_EPOCH, 2, state("b"), state("c"))),
        MembershipLost(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_task_that_others_count_as_dead_joins_again(event: TaskEvent) -> None:
    task = a_member("x")
    task.handle(event)
    assert task.did(Rejoin)
    assert task.machine.ended
    assert task.hear(state("b", (), {"y": "a"}, sequence=5)) == []
    assert task.machine.deadline() is None


def test_a_task_that_was_never_a_member_ignores_epochs_without_it() -> None:
    task = OneTask()
    assert task.begin(2, state("b"), state("c")) == []
    assert not task.machine.ended


# Shares.


def test_a_task_takes_what_others_give_to_it_and_says_so_once_it_owns_it() -> None:
    task = a_member()
    task.hear(state("b", "wz", {"x": "a", "y": "c"}, sequence=2))
    assert task.did(Claim) == [Claim(("x",), 101)]
    assert task.told is None
    task.own("x")
    assert task.told == view("x", sequence=2)


def test_a_share_is_taken_once() -> None:
    task = a_member()
    task.hear(state("b", "wz", {"x": "a"}, sequence=2))
    task.hear(state("b", "w", {"x": "a"}, sequence=3))
    assert task.did(Claim) == []


def test_a_unit_that_comes_back_is_taken_again() -> None:
    task = a_member()
    task.hear(state("b", "wz", {"x": "a"}, sequence=2))
    task.own("x")
    task.handle(UnitsProgressed({}, lost=frozenset("x")))
    task.hear(state("b", "wxz", sequence=3))
    task.hear(state("b", "wz", {"x": "a"}, sequence=4))
    assert task.did(Claim) == [Claim(("x",), 101)]


def test_a_task_with_more_than_its_part_gives_units_away() -> None:
    task = a_member("wxyz")
    assert task.did(Release) == [Release(("y", "z"))]
    assert task.told == view("wx", {"y": "b", "z": "b"}, sequence=2)


def test_finished_units_are_not_given_away() -> None:
    task = a_member(dict.fromkeys("wxyz", FINISHED))
    assert task.did(Release) == []


def test_the_giver_forgets_a_unit_when_it_sees_that_it_was_taken() -> None:
    task = a_member("wxyz")
    task.hear(state("b", "y", sequence=2))
    assert task.told == view("wx", {"z": "b"}, sequence=3)
    task.hear(state("b", "y", {"z": "a"}, sequence=3))
    assert task.machine.share == {}


def test_a_share_that_is_not_taken_is_not_taken_back() -> None:
    task = a_member("wxyz")
    task.handle(UnitsProgressed({}, removed=frozenset("wx")))
    task.tick(100.0)
    assert task.machine.share == {"y": "b", "z": "b"}


def test_a_share_whose_target_is_dead_is_placed_by_the_next_epoch() -> None:
    task = a_member("wxyz")
    task.begin(2, state("a", "wx", {"y": "b", "z": "b"}), state("c", "v"))
    assert task.machine.share == {}
    assert sorted(task.machine.units) == ["w", "x"]


def test_nobody_shares_or_takes_units_in_a_rebalance() -> None:
    task = a_member("w")
    task.rebalance(2)
    task.own("xyz")
    task.hear(state("b", (), {"v": "a"}, sequence=2))
    assert not task.did(Release)
    assert not task.did(Claim)
    task.begin(2, state("a", "wxyz"), state("b", (), {"v": "a"}))
    assert task.did(Claim) == [Claim(("v",), 102)]
    assert task.did(Release) == [Release(("y", "z"))]


# Children.


def test_a_child_that_was_reported_is_an_own_unit() -> None:
    task = a_member("x", state("b", "y"))
    task.handle(UnitsProgressed({}, reported=frozenset(["child"])))
    assert task.did(Claim) == [Claim(("child",), 101)]
    assert task.told == view(["x", "child"], sequence=3)


def test_children_are_given_to_tasks_with_fewer_units() -> None:
    task = a_member("x")
    task.handle(UnitsProgressed({"x": FINISHED}, reported=frozenset(["c1", "c2", "c3", "c4"])))
    assert task.did(Claim) == [Claim(("c1", "c2"), 101)]
    assert task.machine.share == {"c3": "b", "c4": "b"}


def test_a_child_that_another_task_lists_is_left_to_it() -> None:
    task = a_member("x", state("b", ["child"]))
    task.handle(UnitsProgressed({}, reported=frozenset(["child"])))
    assert task.did(Claim) == []


def test_children_of_a_rebalance_are_claimed_in_the_next_epoch_at_the_latest() -> None:
    task = a_member("x", state("b", "y"))
    task.rebalance(2)
    task.handle(UnitsProgressed({}, reported=frozenset(["child"])))
    assert task.did(Claim) == [Claim(("child",), 101)]
    task.handle(ClaimRefused(frozenset(["child"])))
    task.begin(2, state("a", "x"), state("b", "y"))
    assert task.did(Claim) == [Claim(("child",), 102)]
    assert task.told == view(["x", "child"], sequence=5)


# Claims.


def test_a_claim_of_a_share_that_is_refused_is_made_again_in_the_next_epoch() -> None:
    task = a_member()
    task.hear(state("b", "wz", {"x": "a"}, sequence=2))
    task.handle(ClaimRefused(frozenset("x")))
    assert task.machine.claiming == {}
    task.begin(2, state("a"), state("b", "wz", {"x": "a"}, sequence=3))
    assert task.did(Claim) == [Claim(("x",), 102)]


def test_a_claim_that_is_under_way_when_its_target_is_no_member_any_more_is_forgotten() -> None:
    task = a_member()
    task.hear(state("b", "wz", {"x": "a"}, sequence=2))
    task.begin(2, state("a"), state("b", "wxz", sequence=3))
    assert task.machine.claiming == {}


def test_a_unit_without_splits_is_told_once_so_that_its_giver_forgets_it() -> None:
    task = a_member()
    task.hear(state("b", "wz", {"x": "a"}, sequence=2))
    task.handle(Claimed({}, frozenset("x")))
    assert task.told == view({"x": FINISHED}, sequence=2)
    assert task.machine.deadline() == 0.0
    task.tick()
    assert task.told == view(sequence=3)


def test_a_unit_that_two_tasks_list_is_checked_by_its_fence() -> None:
    task = a_member("x")
    task.hear(state("b", "x", sequence=2))
    assert task.did(CheckOwned) == [CheckOwned(("x",))]
    task.handle(StillOwned(frozenset("x")))
    assert task.told == view("x", sequence=3)
    task.hear(state("b", "x", sequence=3))
    task.handle(UnitsProgressed({}, lost=frozenset("x")))
    task.handle(StillOwned(frozenset()))
    assert task.machine.units == {}


# Ends of splits, and progress.


def test_the_end_of_a_split_elsewhere_has_a_task_look_for_what_it_can_remove() -> None:
    task = a_member("x", state("b", "y"))
    task.hear(state("b", "y", sequence=2))
    assert task.did(RemoveUnneeded)  # the first state of the epoch may be older than an end
    task.hear(state("b", "yz", sequence=3))
    assert not task.did(RemoveUnneeded)
    task.hear(state("b", {"y": FINISHED, "z": READING}, sequence=4))
    assert task.did(RemoveUnneeded)


def test_each_change_of_the_state_is_told_once() -> None:
    task = a_member("x")
    task.handle(UnitsProgressed({"x": FINISHED}))
    assert task.told == view({"x": FINISHED}, sequence=3)
    task.handle(UnitsProgressed({"x": FINISHED}))
    assert not task.did(Publish)
    task.handle(UnitsProgressed({}, removed=frozenset("x")))
    assert task.told == view(sequence=4)


def test_the_progress_of_a_source_with_thousands_of_units_is_told_by_one_message_of_many() -> None:
    many = [f"s{number:05d}" for number in range(10_000)]
    task = a_member(many, state("b", [f"t{number:05d}" for number in range(10_000)]))
    told = 0
    for unit in many[:1000]:
        task.handle(UnitsProgressed({}, removed=frozenset([unit])))
        told += len(task.did(Publish))
        task.now += 0.001
    assert told == int(1.0 / (20_000 * UNIT_S))
    due = task.machine.deadline() or 0.0
    task.tick(due - task.now)
    last = task.told or view()
    assert len(last.data) == 9_000


# Invariants.


@pytest.mark.parametrize(
    ("own", "claiming", "share", "violated"),
    [
        ("x", "x", {}, "owns and claims"),
        ("x", "", {"x": "b"}, "owns and shares"),
        ("", "x", {"x": "b"}, "claims and shares"),
        ("", "", {"x": "a"}, "shares with itself"),
    ],
)
def test_a_machine_that_broke_an_invariant_says_so(
    own: str, claiming: str, share: dict[str, str], violated: str
) -> None:
    machine = a_member().machine
    machine.units = dict.fromkeys(own, READING)
    machine.claiming = dict.fromkeys(claiming, True)
    machine.share = share
    with pytest.raises(AssertionError, match=violated):
        machine.validate()


def test_a_machine_without_an_epoch_owns_nothing() -> None:
    machine = TaskMachine("a", ends=False)
    machine.validate()
    machine.units = {"x": READING}
    with pytest.raises(AssertionError, match="without an epoch"):
        machine.validate()
