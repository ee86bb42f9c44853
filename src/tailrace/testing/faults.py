"""The faults of a simulation: their kinds, how often they happen, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from random import Random
from typing import Final

from tailrace.testing.arguments import check_part, check_seconds
from tailrace.testing.network import Network, Quality
from tailrace.testing.process import Life, Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark
from tailrace.testing.unreliable import StoreQuality, UnreliableBackend

_NETWORKS: Final = (
    Quality(),
    Quality(loss=0.1),
    Quality(loss=0.3, straggling=0.05),
    Quality(loss=0.02, doubling=0.3, straggling=0.3, straggling_s=5.0),
)


@dataclass(frozen=True, slots=True)
class Faults:
    """The frequency and duration of faults. Without arguments there are none.

    `…_every_s` is the mean time between two such faults, of all processes together; 0 is never.
    The duration of a fault is random, at most `…_s`.
    """

    network: Quality = field(default_factory=Quality)
    store: StoreQuality = field(default_factory=StoreQuality)
    crash_every_s: float = 0.0
    crash_s: float = 4.0
    """The maximum time after which a crashed process is started again."""
    pause_every_s: float = 0.0
    pause_s: float = 8.0
    cut_every_s: float = 0.0
    cut_s: float = 8.0
    """Half of the cuts are in one direction only."""
    outage_every_s: float = 0.0
    outage_s: float = 5.0
    """During an outage every call of one process to the store fails."""
    step_every_s: float = 0.0
    step_s: float = 3600.0
    """The maximum step of a wall clock, forward or back."""
    drift: float = 0.0
    """The part by which clocks may run fast or slow."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name.endswith("_s"):
                check_seconds(each.name, getattr(self, each.name))
        check_part("drift", self.drift)

    @classmethod
    def drawn(cls, random: Random) -> Faults:
        """Return a mixture for one seed: some kinds of faults, at random rates, and not others.

        Runs with different kinds of faults find more than runs that all have every kind.
        """

        def sometimes(value: float) -> float:
            return value if random.random() < 0.5 else 0.0

        return cls(
            network=random.choice(_NETWORKS),
            store=StoreQuality(
                failure=sometimes(random.choice([0.02, 0.2])),
                unknown=sometimes(random.choice([0.02, 0.2])),
                stalling=sometimes(0.02),
                stalling_s=random.choice([1.0, 6.0]),
            ),
            crash_every_s=sometimes(random.uniform(4, 20)),
            pause_every_s=sometimes(random.uniform(4, 20)),
            pause_s=random.choice([2.0, 12.0]),
            cut_every_s=sometimes(random.uniform(4, 20)),
            outage_every_s=sometimes(random.uniform(8, 30)),
            step_every_s=sometimes(10.0),
            drift=sometimes(0.02),
        )


class FaultInjector:
    """Injects faults into the processes of a simulation, from `begin` to `heal`."""

    def __init__(
        self,
        simulation: Simulation,
        faults: Faults,
        network: Network,
        processes: Mapping[str, Process],
        stores: Callable[[str], UnreliableBackend],
    ) -> None:
        self.faults = faults
        self._simulation = simulation
        self._network = network
        self._processes = processes
        self._stores = stores
        self._random = simulation.random("faults")
        self._clocks = simulation.random("clocks")
        self._on = False

    def begin(self) -> None:
        """Inject faults from now on."""
        faults = self.faults
        self._on = True
        self._network.quality = faults.network
        for name in self._processes:
            self._stores(name).quality = faults.store
        for every_s, fault, random in (
            (faults.crash_every_s, self._crash, self._random),
            (faults.pause_every_s, self._pause, self._random),
            (faults.cut_every_s, self._cut, self._random),
            (faults.outage_every_s, self._outage, self._random),
            (faults.step_every_s, self._step, self._clocks),
        ):
            if every_s:
                self._repeat(every_s, fault, random)

    def heal(self) -> None:
        """End all faults: every process runs, and reaches every other and the store."""
        self._on = False
        self._simulation.record(Mark.FAULT, "all", "heals")
        self._network.heal()
        for name, process in self._processes.items():
            self._stores(name).quality = StoreQuality()
            self._stores(name).down = False
            process.wake()
            if process.life is Life.DEAD:
                process.start()

    def _repeat(self, every_s: float, fault: Callable[[], None], random: Random) -> None:
        def happen() -> None:
            if self._on:
                if self._processes:
                    fault()
                self._repeat(every_s, fault, random)

        self._simulation.after(random.expovariate(1 / every_s), happen)

    def _crash(self) -> None:
        victim = self._one()
        seconds = self._random.uniform(0, self.faults.crash_s)
        if victim.alive:
            victim.crash()
            self._later(seconds, lambda: None if victim.alive else victim.start())

    def _pause(self) -> None:
        self._one().pause(self._random.uniform(0, self.faults.pause_s))

    def _cut(self) -> None:
        names = list(self._processes)
        both_ways = self._random.random() < 0.5
        seconds = self._random.uniform(0, self.faults.cut_s)
        if len(names) < 2:
            return
        one, other = self._random.sample(names, 2)
        pairs = [(one, other), (other, one)] if both_ways else [(one, other)]
        for pair in pairs:
            self._network.cut(*pair)
            self._later(seconds, partial(self._network.mend, *pair))

    def _outage(self) -> None:
        name = self._one().name
        store = self._stores(name)
        store.down = True
        self._simulation.record(Mark.STORE, name, "the store no longer answers")

        def over() -> None:
            store.down = False
            self._simulation.record(Mark.STORE, name, "the store answers again")

        self._later(self._random.uniform(0, self.faults.outage_s), over)

    def _step(self) -> None:
        process = self._processes[self._clocks.choice(list(self._processes))]
        by_ms = round(self._clocks.uniform(-1, 1) * self.faults.step_s * 1000)
        if process.alive:
            process.clock.step(by_ms)
            self._simulation.record(Mark.CLOCK, process.name, f"{by_ms} ms")

    def _one(self) -> Process:
        return self._processes[self._random.choice(list(self._processes))]

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        """End a fault, unless `heal` has ended it."""
        self._simulation.after(seconds, lambda: call() if self._on else None)
