"""The faults that group protocols are known to get wrong, each by itself."""

from __future__ import annotations

import pytest

from tailrace.group.protocol.messages import (
    Grant,
    Invalidate,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from tailrace.testing.faults import Faults
from tailrace.testing.groups import GroupWorld
from tailrace.testing.trace import Mark
from tests.simulation.grouped import (
    TIMES,
    a_group,
    balanced,
    follower_of,
    got,
    leader_of,
    orders,
    push_all,
    recorded,
)


def test_the_first_five_grants_of_every_unit_are_lost() -> None:
    world = GroupWorld(1)
    world.network.drop(Grant, first=5, per=lambda envelope: envelope.message.unit)
    world.topic("orders", partitions=4)
    for name in "ab":
        world.process(name).consumer("billing", "orders")
    push_all(world, 20)
    took_s = world.run_until(lambda: world.consumed("billing"), within_s=15)
    assert took_s > 2
    assert world.run_until_consumed() < 1
    assert not world.audit("billing").doubled


def test_revoke_finished_arrives_three_times_the_last_after_the_unit_was_granted_again() -> None:
    world, _ = a_group("a", partitions=2)
    world.network.repeat(RevokeFinished, times=3, every_s=2.0)
    newcomer = world.process("b").consumer("billing", "orders")
    world.run_until(lambda: len(newcomer.units) == 1, within_s=3)
    world.run(1)
    newcomer.leave()
    world.run_until(
        lambda: len(world.process("a").consumers_of("billing")[0].units) == 2, within_s=2
    )
    granted = recorded(world, "granted")
    push_all(world, 20)
    world.run(5)
    assert len(got(world, RevokeFinished)) >= 3
    assert recorded(world, "granted") == granted
    world.run_until_consumed()
    assert not world.audit("billing").doubled


def test_a_late_revoked_after_the_unit_was_granted_again_to_the_same_borrower() -> None:
    world, [consumer] = a_group("a", partitions=2)
    world.network.repeat(
        lambda e: isinstance(e.message, Revoked) and e.receiver == "a", times=2, every_s=5.0
    )
    newcomer = world.process("b").consumer("billing", "orders")
    world.run_until(lambda: len(newcomer.units) == 1, within_s=3)
    newcomer.leave()
    world.run_until(lambda: len(consumer.units) == 2, within_s=3)
    granted_again = world.now
    assert consumer.session is not None
    units = consumer.session.units
    world.run(6)
    assert len(got(world, Revoked, since=granted_again)) == 1
    assert consumer.session.units == units
    world.run_until_consumed()


def test_late_progress_takes_nothing_back() -> None:
    world, _ = a_group("ab", partitions=1)
    leader = leader_of(world).program.machine.leader("billing")
    assert leader is not None

    def marks() -> list[int]:
        return [mark for _, mark in leader.marks.values()]

    held = world.network.hold(
        lambda e: isinstance(e.message, UpdateProgress) and e.message.mark == 60
    )
    push_all(world, 60)
    world.run_until(lambda: bool(held.messages), within_s=10)
    push_all(world, 40)
    world.run_until(lambda: marks() == [100], within_s=10)
    held.release()
    world.run(1)
    assert marks() == [100]


def test_a_borrower_that_the_leader_dropped_learns_of_it_at_its_ping() -> None:
    world, _ = a_group("ab")
    cut_off = follower_of(world)
    world.network.isolate(cut_off.name)
    world.run(TIMES.free_s + 1)
    assert recorded(world, "left") == 1
    world.network.heal()
    world.run_until(lambda: balanced(world), within_s=3)
    assert len(got(world, Invalidate)) == 1
    push_all(world, 20)
    world.run_until_consumed()


def test_one_dead_among_fifty_talkative_borrowers_is_noticed_in_time() -> None:
    world, consumers = a_group("ab", partitions=1)
    silent = follower_of(world)
    talkative = leader_of(world)
    for _ in range(50):
        talkative.consumer("billing", "orders")
    world.run(1)
    world.network.isolate(silent.name)
    begun = world.now
    world.run_until(lambda: recorded(world, "left") == 1, within_s=TIMES.free_s + 1)
    assert world.now - begun <= TIMES.free_s + 0.1
    assert len(consumers) == 2


def test_a_borrower_dead_inside_a_living_process_is_freed_at_once() -> None:
    world, consumers = a_group("ab")
    dead, alive = consumers
    dead.die()
    took_s = world.run_until(lambda: len(alive.units) == 4, within_s=3)
    assert took_s < 1.5
    push_all(world, 20)
    world.run_until_consumed()


def test_a_fast_new_leader_while_the_borrowers_of_the_old_one_are_cut_off() -> None:
    world, _ = a_group("abc", partitions=6)
    old = leader_of(world)
    cut_off = follower_of(world)
    world.produce("orders", orders(100), every_s=0.1)
    world.run(1)
    for other in world.processes:
        if other not in (old.name, cut_off.name):
            world.network.cut(cut_off.name, other)
            world.network.cut(other, cut_off.name)
    old.crash()
    world.run(10)  # no two may deliver from one unit: checked at every step
    assert leader_of(world) is not old
    world.network.heal()
    old.start()
    world.run_until_consumed()


def test_a_leader_that_was_stopped_for_ten_seconds_frees_no_living_borrower_when_it_wakes() -> None:
    world, _ = a_group("abc", partitions=6)
    old = leader_of(world)
    world.produce("orders", orders(100), every_s=0.2)
    old.pause(10)
    world.run(9.9)
    assert leader_of(world) is not old
    world.run(10)
    left = [
        (process, record.borrower) for _, process, record in world.history if record.what == "left"
    ]
    assert left
    assert all(process != old.name and borrower.startswith(old.name) for process, borrower in left)
    world.run_until_consumed()


def test_a_process_that_was_paused_for_thirty_seconds_wakes_within_a_batch() -> None:
    world = GroupWorld(1)
    world.topic("orders", partitions=4)
    for name in "ab":
        world.process(name).consumer("billing", "orders", takes_s=0.5, concurrency=4)
    push_all(world, 40)
    world.run(1.2)
    follower_of(world).pause(30)
    world.run_until(lambda: world.consumed("billing"), within_s=25)
    world.run(30)
    assert "which has ended" not in str(world.simulation.trace)
    world.run_until_consumed()
    # Four in flight, and those done within one progress interval: four every half a second.
    assert len(world.audit("billing").doubled) <= 4 + 8


@pytest.mark.parametrize("what", ["seek", "scaling"])
def test_a_grant_planned_before_a_change_is_not_committed_after_it(what: str) -> None:
    world, [consumer] = a_group("a", partitions=2)
    push_all(world, 20)
    world.run_until(lambda: world.consumed("billing"), within_s=5)
    newcomer = world.process("b").consumer("billing", "orders")
    changed: list[int] = []

    def change() -> None:
        """Come between what the leader read and what it commits."""
        planned = [
            line
            for line in world.simulation.trace
            if line.mark is Mark.EVENT and "CommitGrants" in str(line)
        ]
        if len(planned) > 1 and not changed:
            changed.append(len(planned))
            if what == "seek":
                world.seek("billing", "earliest")
            else:
                world.scale("orders", 4)

    world.simulation.always(change)
    world.run(5)
    assert changed
    refused = [line for line in world.simulation.trace if "GrantsRefused" in str(line.what)]
    assert refused
    world.run_until_consumed()
    assert newcomer.units
    assert consumer.units


def test_a_handler_of_thirty_seconds_is_revoked_and_its_owner_keeps_its_other_units() -> None:
    world = GroupWorld(1)
    world.topic("orders", partitions=4)
    slow = world.process("a").consumer(
        "billing", "orders", takes_s=30.0, concurrency=40, revoke_timeout_s=2.0
    )
    world.run_until(lambda: len(slow.units) == 4, within_s=5)
    assert slow.session is not None
    before = slow.session.units
    for number in range(40):
        world.push("orders", number, key=f"k{number}")
    world.run(1)  # some of each unit are in flight
    quick = world.process("b").consumer("billing", "orders")
    took_s = world.run_until(lambda: len(quick.units) == 2, within_s=5)
    assert took_s >= 2.0
    assert len(slow.units) == 2
    assert slow.session.units.items() <= before.items()
    assert recorded(world, "left") == 0
    world.at(world.now + 40, slow.leave)
    world.run_until_consumed(within_s=200)


def test_two_hundred_subscriptions_and_unsubscriptions_in_two_seconds() -> None:
    world, consumers = a_group("ab")
    restless = consumers[1]
    for number in range(100):
        world.at(world.now + number * 0.02, restless.leave)
        world.at(world.now + number * 0.02 + 0.01, restless.join)
    world.produce("orders", orders(30), every_s=0.1)
    world.run(3)
    world.run_until(lambda: balanced(world), within_s=5)
    world.run_until_consumed()
    assert not world.audit("billing").doubled


def test_a_store_that_fails_for_ten_commits_only_delays() -> None:
    world, _ = a_group("ab")
    store = world.store_of(leader_of(world).name)
    store.commits_to_fail = 10
    world.process("c").consumer("billing", "orders")
    world.produce("orders", orders(100), every_s=0.1)
    world.run_until(lambda: store.commits_to_fail == 0, within_s=30)
    world.run_until_consumed()


def test_wall_clocks_that_step_by_an_hour_change_nothing() -> None:
    def trace(step_every_s: float) -> tuple[str, int]:
        faults = Faults(crash_every_s=7, pause_every_s=7, step_every_s=step_every_s)
        world, _ = a_group("abc", faults=faults)
        world.produce("orders", orders(67), every_s=0.3)
        world.run(30)
        world.run_until_consumed()
        steps = sum(line.mark is Mark.CLOCK for line in world.simulation.trace)
        return world.simulation.trace.text(hiding={Mark.CLOCK}), steps

    steady, stepping = trace(0), trace(0.2)
    assert (steady[1], stepping[1] > 100) == (0, True)
    assert steady[0] == stepping[0]


def test_a_new_leader_adopts_the_grants_without_revoking_or_resetting_any() -> None:
    world, consumers = a_group("abc", partitions=6)
    world.produce("orders", orders(80), every_s=0.1)
    world.run(1)
    old = leader_of(world)
    others = [consumer for consumer in consumers if consumer.process is not old]
    before = [consumer.session.units for consumer in others if consumer.session is not None]
    crashed_at = world.now
    old.crash()
    took_s = world.run_until(lambda: world.leader("billing") is not None, within_s=2)
    assert took_s < 1
    world.run(TIMES.free_s + 3)
    assert not got(world, (Invalidate, Revoke), since=crashed_at)
    for consumer, units in zip(others, before, strict=True):
        assert consumer.session is not None
        assert units.items() <= consumer.session.units.items()
    old.start()
    world.run_until_consumed()
