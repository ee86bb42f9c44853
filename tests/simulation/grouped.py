"""A group of consumers in a simulation, and its observed events."""

from __future__ import annotations

from typing import Any

from tailrace.group.protocol.events import Received
from tailrace.group.protocol.times import Times
from tailrace.testing.faults import Faults
from tailrace.testing.groups import Consumer, GroupWorld, SimulatedProcess

TIMES = Times()


def a_group(
    processes: str = "ab", partitions: int = 4, seed: int = 1, faults: Faults | None = None
) -> tuple[GroupWorld, list[Consumer]]:
    """A consumer in each process, all connected, all units granted."""
    world = GroupWorld(seed, faults)
    world.topic("orders", partitions=partitions)
    consumers = [world.process(name).consumer("billing", "orders") for name in processes]
    world.run_until(lambda: balanced(world), within_s=10, what="that all units are owned")
    return world, consumers


def balanced(world: GroupWorld) -> bool:
    """True if every unit has one owner, and no borrower two more than another."""
    owners = world.owners("billing")
    counts = [
        len(consumer.units)
        for process in world.processes.values()
        for consumer in process.consumers_of("billing")
    ]
    return (
        all(len(sessions) == 1 for sessions in owners.values()) and max(counts) - min(counts) <= 1
    )


def leader_of(world: GroupWorld) -> SimulatedProcess:
    leader = world.leader("billing")
    assert leader is not None
    return leader


def follower_of(world: GroupWorld) -> SimulatedProcess:
    """A process that does not lead."""
    return next(p for p in world.processes.values() if p is not leader_of(world))


def recorded(world: GroupWorld, what: str) -> int:
    return sum(record.what == what for _, _, record in world.history)


def orders(count: int) -> list[tuple[str, int]]:
    """Numbers, of eight keys in turn, which reach each of four partitions."""
    return [(f"key{number % 8}", number) for number in range(count)]


def push_all(world: GroupWorld, count: int) -> None:
    for key, value in orders(count):
        world.push("orders", value, key=key)


def got(world: GroupWorld, kind: type | tuple[type, ...], since: float = 0.0) -> list[Any]:
    """All messages of a kind that processes got."""
    return [
        line.what.message
        for line in world.simulation.trace
        if line.at >= since
        and isinstance(line.what, Received)
        and isinstance(line.what.message, kind)
    ]
