"""Random worlds: from a seed, a group with sixty seconds of events and faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from tailrace.testing.faults import Faults
from tailrace.testing.groups import Consumer, GroupWorld

SECONDS = 60.0
FAULTY_S = 40.0
"""For so long things go wrong; in the rest of the time all must come right."""


def trial(seed: int) -> GroupWorld:
    """Return a world that has not run yet: processes, consumers, messages, scalings, faults."""
    random = Random(f"trial {seed}")
    world = GroupWorld(seed, Faults.drawn(random))
    _populate(world, random)
    if random.random() < 0.3:
        world.at(random.uniform(5, FAULTY_S), lambda: world.seek("billing", "earliest"))
    _skip_some(world, Random(f"skips of {seed}"))
    _come_and_go(world, random, [Consumer.leave, Consumer.die])
    if random.random() < 0.4:
        _never_rest(world, random)
    return world


def calm_trial(seed: int) -> GroupWorld:
    """Return a world without faults: topics are scaled, consumers join and leave in order."""
    random = Random(f"calm trial {seed}")
    world = GroupWorld(seed)
    _populate(world, random)
    _come_and_go(world, random, [Consumer.leave])
    _never_rest(world, random)
    return world


def _populate(world: GroupWorld, random: Random) -> None:
    world.topic("orders", partitions=random.choice([1, 2, 4, 6]))
    for name in "abcde"[: random.randint(2, 5)]:
        for _ in range(random.choice([1, 1, 2])):
            world.process(name).consumer(
                "billing",
                "orders",
                takes_s=random.choice([(0.001, 0.02), (0.001, 0.02), (0.1, 2.0)]),
                concurrency=random.choice([1, 1, 4]),
                revoke_timeout_s=random.choice([5.5, 35.0]),
            )
    every_s = random.choice([0.4, 0.8])
    orders = [(f"k{random.randrange(8)}", n) for n in range(round(FAULTY_S / every_s))]
    world.produce("orders", orders, every_s=every_s)
    for _ in range(random.randrange(3)):
        partitions = random.choice([1, 2, 3, 4, 6, 8])
        world.at(random.uniform(1, FAULTY_S), partial(world.scale, "orders", partitions))


def _come_and_go(
    world: GroupWorld, random: Random, goodbyes: Sequence[Callable[[Consumer], None]]
) -> None:
    """Let some consumers leave and join again."""
    for process in list(world.processes.values()):
        for consumer in process.consumers_of("billing"):
            if random.random() < 0.3:
                leave_at = random.uniform(1, FAULTY_S)
                world.at(leave_at, partial(random.choice(goodbyes), consumer))
                back_at = random.uniform(leave_at, FAULTY_S)
                world.at(back_at, consumer.join)


def _skip_some(world: GroupWorld, random: Random) -> None:
    """Skip some of the newest messages, which may be in flight."""

    def skip_one() -> None:
        partition = random.choice(sorted(world.storage.records))
        record = random.choice(world.storage.records[partition][-4:])
        world.skip("billing", f"{partition}@{record.offset}")

    for _ in range(random.choice([0, 0, 0, 1, 3])):
        world.at(random.uniform(1, FAULTY_S), skip_one)


def _never_rest(world: GroupWorld, random: Random) -> None:
    """Let one more consumer join and leave repeatedly, so that units move."""
    restless = world.process("a").consumer("billing", "orders")
    at = 0.0
    while (at := at + random.uniform(0.05, 2.0)) < FAULTY_S:
        world.at(at, lambda: restless.leave() if restless.wanted else restless.join())


def run(world: GroupWorld) -> None:
    """Run forty seconds of faults. Then all must be consumed within a stated time."""
    world.run(FAULTY_S)
    world.heal()
    world.run(SECONDS - FAULTY_S)
    world.run_until_consumed()
