"""The cost of idle groups: heartbeats of processes, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.group.protocol.actions import Beat, Probe, ReadUnits, Send
from tailrace.group.protocol.times import Times
from tailrace.testing.groups import GroupWorld

TIMES = Times()
PROCESSES = "ab"
SECONDS = 20.0


def idle_world(groups: int, consumers: int) -> GroupWorld:
    """Return a world of idle groups, each with a number of consumers in each process."""
    world = GroupWorld(1)
    world.topic("orders", partitions=4)
    for name in PROCESSES:
        for group in range(groups):
            for _ in range(consumers):
                world.process(name).consumer(f"g{group}", "orders")
    world.run_until_consumed()
    world.run(5)
    return world


def wanted(world: GroupWorld) -> Counter[str]:
    """What machines want done meanwhile; messages by their own names."""
    begun = world.now
    world.run(SECONDS)
    actions = (a for line in world.simulation.trace if line.at > begun for a in line.actions)
    return Counter(type(a.message if isinstance(a, Send) else a).__name__ for a in actions)


@pytest.mark.parametrize(("groups", "consumers"), [(1, 1), (8, 5)])
def test_many_idle_consumers_cost_as_much_as_one(groups: int, consumers: int) -> None:
    found = wanted(idle_world(groups, consumers))
    pings = len(PROCESSES) * len(PROCESSES) * SECONDS / TIMES.ping_s
    assert found["Ping"] <= pings + len(PROCESSES) ** 2
    assert found["PingResponse"] <= found["Ping"] + 1
    assert found[Beat.__name__] <= len(PROCESSES) * (SECONDS / TIMES.ping_s + 1)
    assert found[Probe.__name__] <= len(PROCESSES) * (SECONDS / TIMES.probe_s + 1)
    assert found[ReadUnits.__name__] <= groups * (SECONDS / TIMES.refresh_s + 1)
    rest = found.keys() - {"Ping", "PingResponse", *(k.__name__ for k in (Beat, Probe, ReadUnits))}
    assert rest == set()
