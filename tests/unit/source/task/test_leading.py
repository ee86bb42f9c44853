"""The leader task: rebalances, units without an owner, and snapshots."""

from __future__ import annotations

from tailrace.source.task.actions import (
    Announce,
    Claim,
    Publish,
    ReadTable,
    RemoveMembers,
    StoreEpoch,
    TaskView,
)
from tailrace.source.task.events import (
    EpochStored,
    Heard,
    LeaderDeposed,
    LeaderElected,
    MembersFound,
    TableRead,
)
from tailrace.source.task.leading import ANSWER_S, AUDIT_S, SNAPSHOT_EVERY
from tailrace.source.task.messages import MessageType, RebalanceEvent
from tests.unit.source.task.one_task import (
    FINISHED,
    OneTask,
    Units,
    a_member,
    epoch,
    message,
    state,
    statuses,
    view,
)

AB = frozenset("ab")


def table(unfinished: Units = (), finished: Units = ()) -> TableRead:
    units = dict.fromkeys(statuses(unfinished), False) | dict.fromkeys(statuses(finished), True)
    return TableRead(units, frozenset())


def a_leader(task: OneTask | None = None) -> OneTask:
    """Return a leader task that has heard everything."""
    task = task or OneTask()
    task.handle(LeaderElected())
    return task


def answer(
    task: OneTask, generation: int, *states: tuple[str, Units, dict[str, str]]
) -> list[object]:
    """Have the leader hear these answers. Return the actions of the last one."""
    for name, units, share in states:
        told = state(name, units, share, sequence=50)
        task.handle(Heard(message(MessageType.REBALANCE_ANSWER, generation, told)))
    return list(task.actions)


def published(task: OneTask, kind: MessageType) -> list[Publish]:
    return [each for each in task.did(Publish) if each.type is kind]


def test_the_first_leader_tells_the_members_and_its_epoch_has_all_units() -> None:
    task = a_leader()
    task.handle(MembersFound(frozenset("a")))
    assert task.did(Announce) == [Announce(RebalanceEvent(1, ("a",), "a"))]
    answer(task, 1, ("a", (), {}))
    assert task.did(ReadTable)
    task.handle(table("xy"))
    assert task.did(StoreEpoch) == [StoreEpoch(1, ("a",))]
    task.handle(EpochStored(epoch(1)))
    [begun] = published(task, MessageType.NEW_EPOCH)
    assert (begun.epoch, begun.epoch_number) == ("epoch 1", 101)
    assert begun.states["a"].data == statuses("xy")
    task.begin(1, state("a", "xy"))
    assert task.did(Claim) == [Claim(("x", "y"), 101)]


def rebalanced(task: OneTask, members: str, generation: int = 2) -> OneTask:
    """Have the leader find these members."""
    task.handle(MembersFound(frozenset(members)))
    assert task.did(Announce) == [Announce(RebalanceEvent(generation, tuple(members), "a"))]
    return task


def test_survivors_keep_their_units_and_the_units_of_a_dead_task_are_shared() -> None:
    task = rebalanced(a_leader(a_member("uv", state("b", "wxyz"), state("c", "t"))), "ac")
    answer(task, 2, ("a", "uv", {}), ("c", "t", {}))
    task.handle(table("tuvwxyz"))
    task.handle(EpochStored(epoch(2)))
    [begun] = published(task, MessageType.NEW_EPOCH)
    assert begun.states["c"] == view("t", sequence=50)
    own = begun.states["a"]
    assert own.data.keys() >= {"u", "v"}
    assert len(own.data) + len(own.share) == 6
    assert sorted(own.share.values()) == ["c", "c"] or len(own.data) - 1 - len(own.share) <= 1


def test_a_unit_that_a_dead_task_was_to_take_is_placed() -> None:
    task = rebalanced(a_leader(a_member("u", state("b"), state("c", "w", {"x": "b"}))), "ac")
    answer(task, 2, ("a", "u", {}), ("c", "w", {"x": "b"}))
    task.handle(table("uwx"))
    task.handle(EpochStored(epoch(2)))
    [begun] = published(task, MessageType.NEW_EPOCH)
    assert begun.states["a"].data == statuses("ux")


def test_a_unit_on_its_way_between_survivors_stays_on_it() -> None:
    task = rebalanced(a_leader(a_member("u", state("b"), state("c", "w", {"x": "a"}))), "ac")
    answer(task, 2, ("a", "u", {}), ("c", "w", {"x": "a"}))
    task.handle(table("uwx"))
    task.handle(EpochStored(epoch(2)))
    [begun] = published(task, MessageType.NEW_EPOCH)
    assert begun.states["a"].data == statuses("u")
    assert begun.states["c"].share == {"x": "a"}


def test_finished_units_without_an_owner_are_the_leader_s() -> None:
    task = rebalanced(a_leader(a_member()), "a")
    answer(task, 2, ("a", (), {}))
    task.handle(table((), "xy"))
    task.handle(EpochStored(epoch(2)))
    [begun] = published(task, MessageType.NEW_EPOCH)
    assert begun.states["a"].data.keys() == {"x", "y"}
    assert begun.states["a"].share == {}


def test_the_same_members_are_no_rebalance() -> None:
    task = a_leader(a_member())
    assert task.handle(MembersFound(AB)) == []


def test_members_that_change_in_a_rebalance_begin_another() -> None:
    task = rebalanced(a_leader(a_member()), "abc")
    assert task.handle(MembersFound(frozenset("abc"))) == []
    rebalanced(task, "ab", generation=3)
    assert not answer(task, 2, ("a", (), {}), ("b", (), {}), ("c", (), {}))
    assert ReadTable() in answer(task, 3, ("a", (), {}), ("b", (), {}))


def test_what_was_read_for_an_earlier_rebalance_stores_no_epoch() -> None:
    task = rebalanced(a_leader(a_member()), "abc")
    answer(task, 2, ("a", (), {}), ("b", (), {}), ("c", (), {}))
    rebalanced(task, "ab", generation=3)
    task.handle(table("x"))
    assert task.did(StoreEpoch) == []
    answer(task, 3, ("a", (), {}), ("b", (), {}))
    task.handle(EpochStored(epoch(2)))
    assert published(task, MessageType.NEW_EPOCH) == []


def test_a_new_leader_ends_the_rebalance_of_its_predecessor() -> None:
    task = a_member()
    task.rebalance(2)
    rebalanced(a_leader(task), "ab", generation=3)


def test_a_leader_that_is_no_member_tells_nobody_of_it() -> None:
    task = a_leader(a_member())
    assert task.handle(MembersFound(frozenset("b"))) == []


def test_a_deposed_leader_begins_no_epoch() -> None:
    task = rebalanced(a_leader(a_member()), "a")
    answer(task, 2, ("a", (), {}))
    task.handle(LeaderDeposed())
    assert not task.machine.is_leader
    task.handle(table("x"))
    task.handle(EpochStored(epoch(2)))
    assert published(task, MessageType.NEW_EPOCH) == []


def test_a_leader_that_hears_of_its_successor_removes_nobody() -> None:
    """It was paused in a rebalance, and has not learned yet that it was deposed."""
    task = rebalanced(a_leader(a_member()), "abc")
    task.now += ANSWER_S
    task.rebalance(3, "abc")
    task.tick()
    assert not task.did(RemoveMembers)
    assert not task.machine.is_leader


def test_a_member_that_does_not_answer_is_removed() -> None:
    task = rebalanced(a_leader(a_member()), "abc")
    answer(task, 2, ("a", (), {}), ("b", (), {}))
    task.tick(ANSWER_S - 0.1)
    assert task.did(RemoveMembers) == []
    task.tick(0.1)
    assert task.did(RemoveMembers) == [RemoveMembers(("c",))]
    task.tick(ANSWER_S)
    assert task.did(RemoveMembers) == [RemoveMembers(("c",))]


# Units without an owner.


def audited(task: OneTask, read: TableRead) -> list[Claim]:
    """Have the leader audit the table."""
    task.tick(AUDIT_S)
    assert task.did(ReadTable)
    task.handle(read)
    return task.did(Claim)


def test_a_unit_without_an_owner_in_two_audits_is_the_leader_s() -> None:
    task = a_leader(a_member("x", state("b", "y")))
    task.hear(state("b", "y", sequence=2))
    assert audited(task, table("xyz")) == []
    assert audited(task, table("xyz")) == [Claim(("z",), 101)]
    assert "z" in task.machine.claiming


def test_a_unit_that_is_announced_meanwhile_is_left_to_its_owner() -> None:
    task = a_leader(a_member("x", state("b", "y")))
    task.hear(state("b", "y", sequence=2))
    assert audited(task, table("xyz")) == []
    task.hear(state("b", "yz", sequence=3))
    assert audited(task, table("xyz")) == []


def test_many_lost_units_are_shared_at_once() -> None:
    task = a_leader(a_member("x", state("b", "y")))
    task.hear(state("b", "y", sequence=2))
    audited(task, table("xymnop"))
    [claim] = audited(task, table("xymnop"))
    assert len(task.machine.claiming) == 3
    assert set(claim.units) == task.machine.claiming.keys()
    assert len(task.machine.share) == 2


def test_there_is_no_audit_in_a_rebalance() -> None:
    task = a_leader(a_member("x"))
    task.hear(state("b", sequence=2))
    rebalanced(task, "abc")
    task.tick(AUDIT_S)
    assert task.did(ReadTable) == []


def test_audits_end_when_nothing_is_heard_any_more() -> None:
    task = a_leader(a_member("x", state("b", "y")))
    task.hear(state("b", "y", sequence=2))
    for _ in range(2):
        audited(task, table("xy"))
    assert task.machine.deadline() is None


# Snapshots.


def test_all_states_are_written_again_after_many_messages() -> None:
    task = a_leader(a_member("x", state("b", "y")))
    for number in range(SNAPSHOT_EVERY):
        assert published(task, MessageType.UPDATE_EPOCH) == []
        task.hear(state("b", "y", sequence=2 + number))
    [again] = published(task, MessageType.UPDATE_EPOCH)
    views: dict[str, TaskView] = dict(again.states)
    assert views["a"].data == statuses("x")
    # The last message is in the snapshot or after its offset: see `TaskDriver`.
    assert views["b"].data == statuses("y")
    assert FINISHED not in views["b"].data.values()
