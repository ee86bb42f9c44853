"""What the history of a group says of why, in words for people."""

from __future__ import annotations

from tailrace.testing import GroupWorld


def a_world() -> GroupWorld:
    """A group of one consumer, which has both partitions of a topic."""
    world = GroupWorld(seed=3)
    world.topic("orders", partitions=2)
    world.process("a").consumer("billing", "orders")
    world.run(3)
    return world


def said(world: GroupWorld, what: str) -> list[str]:
    """The reasons of all lines of a kind, each once."""
    return sorted({record.why for _, _, record in world.history if record.what == what})


def consumer_of_a(world: GroupWorld) -> str:
    (session,) = world.process("a").program.sessions
    return session


def test_the_first_consumer_gets_what_nobody_had() -> None:
    world = a_world()
    assert said(world, "granted") == ["nobody had it"]


def test_what_another_consumer_is_given_is_shared_out_anew() -> None:
    world = a_world()
    world.process("b").consumer("billing", "orders")
    world.run(5)
    assert said(world, "revoking") == ["shared out anew: another joined"]
    assert said(world, "freed") == ["let go of, finished in order"]
    assert said(world, "granted") == ["nobody had it", f"taken over from {consumer_of_a(world)}"]


def test_a_consumer_that_leaves_is_told_from_one_that_died() -> None:
    world = a_world()
    world.process("b").consumer("billing", "orders")
    world.process("c").consumer("billing", "orders")
    world.run(5)
    (leaving,) = world.process("b").consumers_of("billing")
    leaving.leave()
    world.run(5)
    assert said(world, "left") == ["left in order"]
    world.process("c").crash()
    world.run(20)
    assert "died with its process" in said(world, "left")


def test_a_stream_that_is_finished_ends_as_all_consumed() -> None:
    world = a_world()
    world.push("orders", 1, key="k")
    world.scale("orders", 4)
    world.settle()
    world.run(5)
    assert said(world, "revoking") == ["all consumed"]
    assert said(world, "granted") == ["new, and what it follows is finished", "nobody had it"]


def test_a_seek_takes_away_what_it_moves() -> None:
    world = a_world()
    world.seek("billing", "latest")
    world.run(5)
    assert said(world, "freed") == ["taken away by a seek or a skip"]
    assert said(world, "granted") == ["has it again", "nobody had it"]
