"""The life of a group: the owners of units, and the times of changes."""

from __future__ import annotations

from tailrace.group.protocol.messages import (
    Ping,
    Revoke,
    Revoked,
)
from tailrace.testing.groups import GroupWorld
from tests.simulation.grouped import (
    TIMES,
    a_group,
    leader_of,
    push_all,
    recorded,
)


def test_the_first_consumer_of_a_group_owns_all_units_before_any_message_is_repeated() -> None:
    world, _ = a_group("a", partitions=4)
    assert world.now < TIMES.resend_s


def test_the_history_of_a_group_records_the_owners_of_units() -> None:
    world, _ = a_group("a", partitions=2)
    newcomer = world.process("b").consumer("billing", "orders")
    for goodbye in (newcomer.leave, world.process("b").crash):
        newcomer.join()
        world.run_until(lambda: len(newcomer.units) == 1, within_s=3)
        goodbye()
        world.run(10)
    lines = [(each.what, each.unit, each.borrower[:1]) for _, _, each in world.history]
    granted = [("granted", "orders/0.0", "a"), ("granted", "orders/0.1", "a")]
    moved = [
        ("joined", "", "b"),
        ("revoking", "orders/0.1", "a"),
        ("freed", "orders/0.1", "a"),
        ("granted", "orders/0.1", "b"),
        ("freed", "orders/0.1", "b"),
    ]
    assert lines == [
        ("term", "", ""),
        ("joined", "", "a"),
        *granted,
        *(*moved, ("left", "", "b"), granted[1]),
        *(*moved, ("left", "", "b"), granted[1]),
    ]


def test_processes_that_were_all_stopped_for_ten_seconds_take_none_for_dead() -> None:
    """As on a machine that was asleep; the pings of the others come late."""
    world, consumers = a_group("abc", partitions=6)
    leader = leader_of(world)
    before = [consumer.units for consumer in consumers]
    for process in world.processes.values():
        process.pause(10)
    late = world.network.hold(Ping)
    world.run(10.5)
    late.release()
    world.run(5)
    assert leader_of(world) is leader
    assert recorded(world, "left") == 0
    assert [consumer.units for consumer in consumers] == before
    push_all(world, 20)
    world.run_until_consumed()


def test_an_owner_that_cannot_be_reached_delivers_nothing_once_another_owns_the_unit() -> None:
    """It is reached by the answers to its pings, and not by what takes the unit away."""
    world = GroupWorld(1)
    world.topic("orders", partitions=2)
    deaf = world.process("a").consumer("billing", "orders", revoke_timeout_s=2.0)
    world.run_until(lambda: len(deaf.units) == 2, within_s=5)
    lost = world.network.drop((Revoke, Revoked))
    # All of the unit that it keeps: so no refused commit tells it.
    world.produce("orders", [("k0", number) for number in range(200)], every_s=0.1)
    newcomer = world.process("b").consumer("billing", "orders")
    took_s = world.run_until(lambda: len(newcomer.units) == 1, within_s=10)
    assert took_s >= 2.0 + TIMES.free_s
    world.run(5)  # no two may deliver from one unit: checked at every step
    assert deaf.units == ["orders/0.0", "orders/0.1"]
    lost.end()
    world.run_until(lambda: len(deaf.units) == 1, within_s=3)
    assert recorded(world, "left") == 0
    world.run_until_consumed()


def test_a_unit_is_consumed_as_soon_as_all_units_it_follows_are_finished() -> None:
    world, _ = a_group("ab", partitions=2)
    push_all(world, 40)
    world.scale("orders", 4)
    push_all(world, 40)
    assert world.run_until(lambda: world.consumed("billing"), within_s=30) < 3
    assert TIMES.refresh_s > 3  # it did not have to wait for that
    world.run_until_consumed()
