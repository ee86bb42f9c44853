"""The reasons in the history of a group."""

from __future__ import annotations

from tailrace.testing import GroupWorld


def a_world() -> GroupWorld:
    """Return a world with one consumer, which owns both partitions of a topic."""
    world = GroupWorld(seed=3)
    world.topic("orders", partitions=2)
    world.process("a").consumer("billing", "orders")
    world.run(3)
    return world


def reasons(world: GroupWorld, what: str) -> list[str]:
    """Return the reasons of all history lines of a kind, each once."""
    return sorted({record.why for _, _, record in world.history if record.what == what})


def consumer_of_a(world: GroupWorld) -> str:
    (session,) = world.process("a").program.sessions
    return session


def test_a_first_grant_says_that_no_consumer_had_the_unit() -> None:
    world = a_world()
    assert reasons(world, "granted") == ["no consumer had it"]


def test_a_unit_moved_to_a_joining_consumer_says_that_it_was_rebalanced() -> None:
    world = a_world()
    world.process("b").consumer("billing", "orders")
    world.run(5)
    assert reasons(world, "revoking") == ["rebalanced: a consumer joined"]
    assert reasons(world, "freed") == ["drained and released"]
    assert reasons(world, "granted") == [
        "no consumer had it",
        f"taken over from {consumer_of_a(world)}",
    ]


def test_the_reason_tells_a_consumer_that_left_from_one_that_died() -> None:
    world = a_world()
    world.process("b").consumer("billing", "orders")
    world.process("c").consumer("billing", "orders")
    world.run(5)
    (leaving,) = world.process("b").consumers_of("billing")
    leaving.leave()
    world.run(5)
    assert reasons(world, "left") == ["the consumer was closed"]
    world.process("c").crash()
    world.run(20)
    assert "the consumer's process died" in reasons(world, "left")


def test_a_finished_unit_says_that_every_record_is_acknowledged() -> None:
    world = a_world()
    world.push("orders", 1, key="k")
    world.scale("orders", 4)
    world.run_until_consumed()
    world.run(5)
    assert reasons(world, "revoking") == ["finished: every record is acknowledged"]
    assert reasons(world, "granted") == [
        "no consumer had it",
        "opened: every partition that it follows is finished",
    ]


def test_a_unit_revoked_by_a_seek_says_so() -> None:
    world = a_world()
    world.seek("billing", "latest")
    world.run(5)
    assert reasons(world, "freed") == ["revoked by a seek or a skip"]
    assert reasons(world, "granted") == ["granted again to the same consumer", "no consumer had it"]


def test_a_paused_process_loses_its_partitions_when_its_lease_expires() -> None:
    world = a_world()
    world.process("b").consumer("billing", "orders")
    world.run(5)
    world.process("b").pause(20)
    world.run(10)
    expired = "lease expired: the consumer's process sent no heartbeat for 3.3 s"
    assert reasons(world, "left") == [expired]
    assert expired in reasons(world, "freed")
