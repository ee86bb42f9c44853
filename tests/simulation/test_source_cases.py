"""The faults that a source shared by tasks could get wrong, each by itself."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.reserved_names import SYNC_SUFFIX
from tailrace.source.names import SNAPSHOTS
from tailrace.source.reader import Split, Until
from tailrace.source.task import leading
from tailrace.source.task.events import Heard
from tailrace.testing.sources.script import ScriptedBatch, SourceScript
from tailrace.testing.sources.world import SourceWorld
from tests.simulation.shared_source import (
    a_source,
    agreed,
    fence_epoch,
    leader,
    long,
    machine_of,
    other_than,
    owner_of,
    run_until_stored,
    splitting,
    stored,
)

DEAD_S = 20.0
"""After this time a silent task was counted as dead, and its units have new owners."""

MERGED = Split("merged", follows=("a", "b"))


def merging(a_s: float, b_s: float) -> SourceScript:
    """Return two splits that merge, with an end of each at a time."""
    return SourceScript(
        [Split("a"), Split("b")],
        {
            "a": splitting([MERGED], a_s),
            "b": splitting([MERGED], b_s),
            "merged": long("merged", 3),
        },
    )


def many(count: int, batches: int = 30) -> SourceScript:
    """Return splits without an end."""
    names = [f"s{number}" for number in range(count)]
    return SourceScript(map(Split, names), {name: long(name, batches) for name in names})


# Merges.


@pytest.mark.parametrize("killed", ["a", "b"])
@pytest.mark.parametrize("batches", [2, 3], ids=["before its report", "after its report"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_child_of_two_parents_is_read_once_if_the_task_of_either_is_killed(
    killed: str, batches: int, first: str
) -> None:
    world = a_source(merging(*((4.0, 8.0) if first == "a" else (8.0, 4.0))))
    assert owner_of(world, "a") is not owner_of(world, "b")
    run_until_stored(world, killed, batches)
    owner_of(world, killed).crash()
    world.run_until_read()
    assert stored(world, "merged") == 3


@pytest.mark.parametrize("batches", [2, 3], ids=["before the reports", "after the reports"])
def test_a_child_of_two_parents_is_read_once_if_the_tasks_of_both_are_killed(batches: int) -> None:
    world = a_source(merging(4.0, 8.0), "abc")
    for parent in "ab":
        run_until_stored(world, parent, batches)
        owner_of(world, parent).crash()
    world.run_until_read()
    assert stored(world, "merged") == 3


@pytest.mark.parametrize("killed", ["a", "b", "met late"])
def test_a_child_waits_for_a_parent_that_is_met_only_later(killed: str) -> None:
    late = Split("met late", follows=("b",))
    child = Split("child", follows=("a", "met late"))
    script = SourceScript(
        [Split("a"), Split("b")],
        {
            "a": splitting([child], 2.0),
            "b": splitting([late], 8.0),
            "met late": splitting([child], 12.0),
            "child": long("child", 2),
        },
    )
    world = a_source(script)
    run_until_stored(world, "a", 3)
    if killed == "a":
        owner_of(world, "a").crash()
    run_until_stored(world, "b", 3)
    assert not stored(world, "child")
    if killed == "b":
        owner_of(world, "b").crash()
    run_until_stored(world, "met late", 3)
    assert not stored(world, "child")
    if killed == "met late":
        owner_of(world, "met late").crash()
    world.run_until_read()
    assert stored(world, "child") == 2


# Ends.


def ending(finishes_s: float) -> SourceScript:
    """Return a split whose reader ends again and again, until its child is known."""
    last = ScriptedBatch(1, (Split("child", follows=("a",)),), finishes_s, ends=True, finished=True)
    return SourceScript(
        [Split("a"), Split("b")],
        {"a": (ScriptedBatch(1), last), "b": long("b"), "child": long("child", 2)},
    )


@pytest.mark.parametrize("dies", [False, True], ids=["alive", "dies"])
def test_a_parent_that_ends_without_its_children_is_read_again_and_not_finished(dies: bool) -> None:
    world = a_source(ending(20.0))
    owner = owner_of(world, "a")
    world.run_until(lambda: world.now > 8.0, within_s=10.0)
    if dies:
        owner.crash()
        owner = other_than(world, owner)
    world.run_until(lambda: world.now > 19.0, within_s=20.0)
    assert stored(world, "a") == 1
    assert "a" in machine_of(owner).units
    assert "child" not in world.source_checks.reports
    world.run_until_read()
    assert stored(world, "child") == 2


def test_a_run_until_now_ends_and_the_parent_is_read_again_by_the_next_run() -> None:
    world = SourceWorld(1, ending(20.0), until=Until.NOW)
    for name in "ab":
        world.task_process(name).read()
    world.run_until(lambda: all(each.done for each in world.task_processes), within_s=20.0)
    assert world.now < 20.0
    assert stored(world, "a") == 1
    world.run(20.0)
    for name in "cd":
        world.task_process(name).read()
    world.run_until_read()
    assert stored(world, "child") == 2


# Leaders.


@pytest.mark.parametrize("splits", ["a", "b"], ids=["of the leader", "of the other task"])
@pytest.mark.parametrize("batches", [2, 3], ids=["before", "after"])
def test_a_leader_dies_while_a_split_splits(splits: str, batches: int) -> None:
    children = [Split(f"child{number}", follows=(splits,)) for number in range(6)]
    script = SourceScript(
        [Split("a"), Split("b")],
        {
            "a": long("a", 2),
            "b": long("b", 2),
            splits: splitting(children, 5.0),
            **{child.id: long(child.id, 3) for child in children},
        },
    )
    for seed in range(4):
        world = a_source(script, "abc"[: 2 + seed % 2], seed=seed)
        run_until_stored(world, splits, batches)
        leader(world).crash()
        world.run_until_read()
        assert all(stored(world, child.id) == 3 for child in children)


def test_a_leader_dies_between_the_entry_of_an_epoch_and_its_message() -> None:
    world = a_source(many(6), "ab")
    before = machine_of(leader(world)).epoch
    assert before is not None
    begun = fence_epoch_of_source(world)
    world.task_process("c").read()
    world.run_until(lambda: fence_epoch_of_source(world) > begun, within_s=10.0)
    leader(world).crash()
    world.run_until_read()
    assert all(stored(world, f"s{number}") == 30 for number in range(6))


def test_a_leader_is_paused_in_a_rebalance_and_wakes_after_its_successor_ended_it() -> None:
    world = a_source(many(6), "abc")
    paused = leader(world)
    world.task_process("d").read()
    world.run_until(lambda: machine_of(paused).rebalancing, within_s=10.0)
    paused.pause()
    world.run(DEAD_S)
    assert leader(world) is not paused
    paused.wake()
    world.run_until_read()
    assert len(machine_of(leader(world)).members) == 4


def fence_epoch_of_source(world: SourceWorld) -> int:
    """Return the number of the newest epoch that is stored."""
    entry = world.storage.store.get("fence/source/shop")
    return 0 if entry is None else entry.version


# Shares.


def test_the_target_of_a_share_is_paused_declared_dead_and_woken() -> None:
    world = a_source(many(6), "a")
    giver, target = world.task_process("a"), world.task_process("b")
    target.read()
    world.run_until(lambda: bool(machine_of(giver).share), within_s=10.0)
    given = set(machine_of(giver).share)
    target.pause()
    world.run(DEAD_S)
    assert given <= machine_of(giver).units.keys()
    assert machine_of(giver).members == {machine_of(giver).task}
    taken = {unit: fence_epoch(world, unit) for unit in given}
    target.wake()
    dead = machine_of(target)
    world.run_until(lambda: dead.ended, within_s=10.0)
    assert {unit: fence_epoch(world, unit) for unit in given} == taken
    world.run_until_read()
    assert len(machine_of(target).units) == 3


def test_the_target_of_a_share_is_paused_when_it_has_taken_it_and_has_not_told() -> None:
    world = a_source(many(6), "a")
    giver, target = world.task_process("a"), world.task_process("b")
    epochs = {f"s{number}": fence_epoch(world, f"s{number}") for number in range(6)}
    target.read()
    world.run_until(
        lambda: any(fence_epoch(world, unit) > epoch for unit, epoch in epochs.items()),
        within_s=10.0,
    )
    target.pause()
    assert len(machine_of(giver).share) == 3
    world.run(DEAD_S)
    assert len(machine_of(giver).units) == 6
    target.wake()
    world.run_until_read()
    assert len(machine_of(target).units) == 3


def test_a_task_that_was_declared_dead_takes_nothing_from_its_successors() -> None:
    world = a_source(many(9, batches=60), "abc")
    victim = other_than(world, leader(world))
    dead = machine_of(victim)
    held = set(dead.units)
    before = {unit: stored(world, unit) for unit in held}
    victim.pause()
    world.run(DEAD_S)
    taken = {unit: fence_epoch(world, unit) for unit in held}
    assert all(stored(world, unit) > before[unit] for unit in held)
    victim.wake()
    world.run_until(lambda: dead.ended, within_s=10.0)
    assert {unit: fence_epoch(world, unit) for unit in held} == taken
    world.run_until(lambda: agreed(world), within_s=30.0)
    assert machine_of(victim).task != dead.task
    world.run_until_read()


def test_a_target_that_leaves_before_it_takes_a_share_leaves_it_to_the_next_epoch() -> None:
    world = a_source(many(6), "ab")
    world.task_process("c").read()
    world.run_until(
        lambda: any(machine.share for machine in world.machines().values()), within_s=10.0
    )
    world.task_process("c").leave()
    world.run_until_read()
    assert [len(machine.units) for machine in world.machines().values()] == [3, 3]


def test_members_that_join_in_the_middle_of_a_rebalance_are_in_the_next() -> None:
    world = a_source(many(12), "ab")
    for name in "cdef":
        world.task_process(name).read()
        machine = machine_of(leader(world))
        world.run_until(lambda each=machine: each.rebalancing, within_s=10.0)  # type: ignore[misc]
    world.run_until_read()
    assert [len(machine.units) for machine in world.machines().values()] == [2] * 6


# Long stops.


def test_tasks_resume_from_the_last_snapshot_after_48_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leading, "SNAPSHOT_EVERY", 10)
    script = many(4, batches=40)
    world = a_source(script, "abc")
    for leaves in "abcabc":
        process = world.task_process(leaves)
        process.leave()
        world.run(5.0)
        process.read()
    world.run_until(lambda: stored(world, "s0") >= 20 and agreed(world), within_s=60.0)
    for process in world.task_processes:
        process.crash()
    [sync] = [each for each in world.storage.records if each.topic == "shop" + SYNC_SUFFIX]
    told = world.storage.records[sync]
    entry = world.storage.store.get(SNAPSHOTS + "shop")
    assert entry is not None
    assert entry.value is not None
    since = [record for record in told if record.offset >= int(entry.value)]
    assert 0 < len(since) <= 20 < len(told)

    world.run(48 * 3600.0)
    begun = world.now
    for process in world.task_processes:
        process.start()
    world.run_until(lambda: agreed(world), within_s=60.0)
    heard = Counter(
        line.where
        for line in world.simulation.trace
        if line.at >= begun and isinstance(line.what, Heard)
    )
    assert max(heard.values()) <= len(since) + 20
    world.run_until_read()
    assert all(stored(world, name) == 40 for name in script.batches)
