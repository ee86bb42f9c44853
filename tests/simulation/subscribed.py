"""Subscriptions in a simulation: handlers with known outcomes, and random worlds from a seed."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from functools import partial
from random import Random
from typing import Any

from tailrace import Delivery, Reject, Retry, RetryLater
from tailrace.clock import utc_time
from tailrace.delivery.load_control import UNLIMITED, LoadControl
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.testing.faults import Faults
from tailrace.testing.subscriptions.worker import KillWorker
from tailrace.testing.subscriptions.world import SubscriptionWorld

SECONDS = 60.0
FAULTY_S = 40.0
"""For so long things go wrong; in the rest of the time all must come right."""
ATTEMPTS = 3
TAKES_S = [(0.001, 0.02), (0.001, 0.02), (0.1, 1.0)]
NAME = "crm"
NEIGHBOUR = "archive"
"""A subscription of another topic, whose workers share the processes in some of the worlds."""


class Fate(Enum):
    """What the handler does with a message."""

    SUCCEEDS = "succeeds"
    FAILS_ONCE = "fails once"
    FAILS_TWICE = "fails twice"
    FAILS = "fails always"
    IS_REJECTED = "is rejected"
    WAITS = "asks for a delay once"
    KILLS = "kills its worker"


_FAILURES = {Fate.FAILS_ONCE: 1, Fate.FAILS_TWICE: 2, Fate.FAILS: 1000}


class FlakyService:
    """The handler of all workers: each message has its fate, and errors are counted over all."""

    def __init__(self, world: SubscriptionWorld, fates: dict[int, Fate]) -> None:
        self.world = world
        self.fates = fates
        self.failures: Counter[int] = Counter()
        self.positions: dict[str, int] = {}
        self.kills = 0

    def __call__(self, delivery: Delivery[Any]) -> None:
        value = delivery.value
        self.positions[delivery.id] = value
        fate = self.fates.get(value, Fate.SUCCEEDS)
        if fate is Fate.KILLS:
            self.kills += 1
            raise KillWorker
        if fate is Fate.IS_REJECTED:
            raise Reject("negative total")
        if fate is Fate.WAITS and not self.failures[value]:
            self.failures[value] += 1
            raise RetryLater("700ms")
        if self.failures[value] < _FAILURES.get(fate, 0):
            self.failures[value] += 1
            raise ValueError("no stock")


class Trial:
    """A world that has not run yet, and its handler."""

    def __init__(self, world: SubscriptionWorld, service: FlakyService) -> None:
        self.world = world
        self.service = service
        self.services = {NAME: service}
        """The handler of each subscription."""
        self._fates = dict(service.fates)

    def add_neighbour(self, random: Random) -> None:
        """Let every process work for another subscription too, some of whose messages kill it."""
        world = self.world
        world.topic("entries", partitions=2)
        world.subscription(NEIGHBOUR, "entries", retry=Retry(ATTEMPTS, first="300ms", max="2s"))
        entries = [(f"k{number % 5}", number) for number in range(60)]
        fates = {random.randrange(10, 50): Fate.KILLS for _ in range(random.randint(1, 2))}
        service = self.services[NEIGHBOUR] = FlakyService(world, fates)
        for name in world.processes:
            world.worker(name).work(NEIGHBOUR, service, takes_s=random.choice(TAKES_S))
        world.produce("entries", entries, every_s=FAULTY_S / len(entries))

    def run(self) -> None:
        """Run forty seconds of faults. Then all must be delivered within a stated time."""
        world = self.world
        world.run(FAULTY_S)
        world.heal()
        for name, process in world.processes.items():
            world.worker(name).start_again()
            _revive(world, name)
            assert process
        world.run(SECONDS - FAULTY_S)
        world.run_until_consumed(within_s=400)
        self.check_dead()

    def check_dead(self) -> None:
        """A message is a dead letter only if it was rejected, if it failed as often as it may, or
        if it was alone in its worker when that ended, or if it follows such a one."""
        checks = self.world.subscription_checks
        for name, service in self.services.items():
            fates = self._fates if name == NAME else service.fates
            for position in checks.attempted_dead(name):
                value = service.positions.get(position, -1)
                fate = fates.get(value, Fate.SUCCEEDS)
                failures = service.failures[value] + checks.deaths[position]
                if fate is not Fate.IS_REJECTED and failures < ATTEMPTS:
                    what = f"{position} {fate.value}, and is dead after {failures} attempts"
                    raise self.world.simulation.violation(what)


def _revive(world: SubscriptionWorld, name: str) -> None:
    """Start a process again whenever it has died."""
    process = world.worker(name)
    if not process.alive:
        process.start()
    world.at(world.now + 1.0, partial(_revive, world, name))


def trial(
    seed: int, *, slice_max: int = 0, queue_factor: int | None = None, limited: bool = False
) -> Trial:
    """Return processes, a subscription, messages with fates, scalings and faults.

    With `slice_max`, a call has up to so many messages of a partition. RQ and DLQ mirror the topic,
    or have `queue_factor` times as many partitions. With `limited`, the workers have few calls
    have few calls together, and long ones, and a throttle.
    """
    random = Random(f"subscription trial {seed}")
    world = SubscriptionWorld(seed, Faults.drawn(random))
    partitions = random.choice([1, 2, 4])
    world.topic("orders", partitions=partitions)
    policy = random.choice([OnDeadLetter.BLOCK, OnDeadLetter.BLOCK, OnDeadLetter.CONTINUE])
    shards = random.choice([n for n in (1, 2, 4) if n <= partitions])
    total = (
        shards + Random(f"total {seed}").choice([0, 1, 2]) if limited and not slice_max else None
    )
    world.subscription(
        NAME,
        "orders",
        retry=Retry(ATTEMPTS, first="300ms", max="2s"),
        policy=policy,
        shards=shards,
        queue_partitions=None if queue_factor is None else queue_factor * partitions,
        load=LoadControl(total, breaker_run=None) if limited else UNLIMITED,
    )
    every_s = random.choice([0.2, 0.4])
    orders = [(_key(random), number) for number in range(round(FAULTY_S / every_s))]
    service = FlakyService(world, _fates(random, len(orders)))
    for name in "abcd"[: random.randint(1, 4)]:
        world.worker(name).work(
            NAME,
            service,
            takes_s=TAKES_S[-1] if limited else random.choice(TAKES_S),
            concurrency=random.choice([1, 4, 8]),
            slice_max=slice_max,
        )
        if random.random() < 0.5:
            world.at(random.uniform(1, FAULTY_S), world.worker(name).leave)
            world.at(random.uniform(1, FAULTY_S), world.worker(name).start_again)
    burst = Random(f"bursts {seed}").choice([6, 12]) if slice_max else 1
    for number, (key, value) in enumerate(orders):
        at = world.now + number // burst * burst * every_s
        world.at(at, partial(world.push, "orders", value, key=key))
    for _ in range(random.randrange(3)):
        count = partitions * random.choice([1, 2, 3])
        world.at(random.uniform(1, FAULTY_S), partial(world.scale, "orders", count))
    made = Trial(world, service)
    beside = Random(f"neighbour {seed}")
    if beside.random() < 0.3:
        made.add_neighbour(beside)
    return made


def _key(random: Random) -> str | None:
    return random.choice(["a", "b", "c", "d", "e", "f", "g", None])


def _fates(random: Random, messages: int) -> dict[int, Fate]:
    """Return the fates of the messages that do not simply succeed."""
    fates = {}
    often = random.choice([0.05, 0.3, 1.0])
    for number in range(messages):
        if random.random() < often:
            fates[number] = random.choice(
                [Fate.FAILS_ONCE] * 6 + [Fate.FAILS_TWICE] * 3 + [Fate.WAITS] * 2
                + [Fate.IS_REJECTED, Fate.FAILS]
            )  # fmt: skip
    if random.random() < 0.3:
        fates[random.randrange(messages)] = Fate.KILLS
    return fates


def pause_at_times(world: SubscriptionWorld, seed: int) -> None:
    """Pause the subscription now and then; it is not paused at the end of the faults."""
    random = Random(f"pauses {seed}")
    for _ in range(random.randint(1, 4)):
        at = random.uniform(1, FAULTY_S - 1)
        world.at(at, partial(world.pause, NAME))
        world.at(min(FAULTY_S, at + random.uniform(0.01, 6)), partial(world.resume, NAME))
    world.at(FAULTY_S, partial(world.resume, NAME))


def reset_at_times(world: SubscriptionWorld, seed: int) -> None:
    """Reset the subscription now and then: everywhere, back at one position, or forward in a
    queue. Some operators die after their first step."""
    random = Random(f"resets {seed}")
    for _ in range(random.randint(1, 5)):
        at = random.uniform(1, FAULTY_S)
        interrupted = random.random() < 0.5
        match random.choice(["start", "start", "end", "time", "time", "position", "rq", "dlq"]):
            case "time":
                to = f"@{utc_time(int(random.uniform(0, at) * 1000)).isoformat()}"
                act = partial(world.reset, NAME, to, interrupted=interrupted)
            case "position":
                act = partial(_reset_back, world, random.random(), interrupted=interrupted)
            case "rq" | "dlq" as queue:
                act = partial(world.reset, NAME, "end", queue=queue, interrupted=interrupted)
            case to:
                act = partial(world.reset, NAME, to, interrupted=interrupted)
        world.at(at, act)


def _reset_back(world: SubscriptionWorld, chosen: float, *, interrupted: bool) -> bool:
    """Reset one partition to an offset that is acknowledged."""
    stored = world.stored(NAME)
    partitions = [each for n in range(stored.definition.shards) for each in stored.streams(n).mq]
    where = partitions[int(chosen * len(partitions))]
    mark = read_ledgers(world.storage, stored, [where])[where].mark
    end = world.storage.log.bounds(where).end
    return world.reset(NAME, f"{where}@{int(chosen * min(mark, end))}", interrupted=interrupted)


def run(
    seed: int,
    *,
    pauses: bool = False,
    resets: bool = False,
    slice_max: int = 0,
    limited: bool = False,
) -> Trial:
    """Run a trial of a seed."""
    made = trial(seed, slice_max=slice_max, limited=limited)
    if resets:
        reset_at_times(made.world, seed)
    if pauses:
        pause_at_times(made.world, seed)
    made.run()
    return made
