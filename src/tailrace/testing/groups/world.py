"""A hub whose processes and faults are all simulated, for tests of handlers and of groups.

    world = GroupWorld(seed=7, faults=Faults(crash_every_s=5))
    world.topic("orders", partitions=4)
    for name in ("a", "b", "c"):
        world.process(name).consumer("billing", "orders", handler=charge)
    world.produce("orders", [("c7", 1), ("c8", 1), ("c7", 2)], every_s=0.5)
    world.run(30)
    world.settle()

Everything that groups promise is checked at every step; a `Violation` names the seed and shows what
happened last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from tailrace.backend.contract import Change
from tailrace.group.actions import Record
from tailrace.group.definition import TopicFilter
from tailrace.group.grants import look
from tailrace.group.opening import open_group
from tailrace.group.sending import seek, skip
from tailrace.group.starting import parse_start
from tailrace.group.streams import read_basis
from tailrace.group.times import Times
from tailrace.group.unit import UnitState
from tailrace.hub import Hub
from tailrace.message import Message, Partition, Position, Receipt
from tailrace.testing.arguments import (
    check_callable,
    check_known,
    check_pairs,
    check_seconds,
)
from tailrace.testing.auditor import Audit
from tailrace.testing.faults import Faults, Turmoil
from tailrace.testing.groups.checks import Checks
from tailrace.testing.groups.consumer import SimulatedProcess
from tailrace.testing.groups.ground import Ground
from tailrace.testing.groups.topics import Topics, WorldClock
from tailrace.testing.network import Network
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark, Trace
from tailrace.testing.unreliable import UnreliableBackend
from tailrace.topic.composite import check_name

LOOK_S: Final = 0.5
"""How often it is looked whether a world has settled."""


class GroupWorld:
    """A simulated hub. Time passes in `run`, `run_until` and `settle` alone.

    Without `faults` nothing goes wrong but what the test itself brings about.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        *,
        times: Times | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.times = times or Times()
        self.simulation = Simulation(seed, trace=trace)
        self.network = Network(self.simulation)
        self.checks = Checks(self.simulation)
        self.ground = Ground(self.checks.moved, self._changed, self._appended)
        self.checks.ground = self.ground
        self.history: list[tuple[float, str, Record]] = []
        """What leaders recorded: when, in which process, what."""
        self.processes: dict[str, SimulatedProcess] = {}
        self._faults = faults or Faults()
        self._clock = WorldClock(self.simulation)
        self._topics = Topics(Hub.from_backend(self.ground, clock=self._clock))
        self._stores: dict[str, UnreliableBackend] = {}
        self._groups: dict[str, str] = {}
        self._turmoil = Turmoil(
            self.simulation, self._faults, self.network, self.processes, self.store_of
        )
        self._random = self.simulation.random("world")
        self._interleaving = False
        self._begun = False
        self._healed = False

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.simulation.now

    # What there is.

    def topic(self, name: str, type: Any = None, *, partitions: int = 4) -> None:
        """Create a topic. Handlers get its values decoded as this type."""
        self._topics.create(name, type, partitions)

    def decode(self, message: Message[Any]) -> Any:
        """The value of a message of any topic."""
        return self._topics.decode(message)

    def process(self, name: str) -> SimulatedProcess:
        """Start a process, or find it."""
        check_name("process", name)
        if name not in self.processes:
            self._stores[name] = UnreliableBackend(
                self.ground, self.simulation.random(f"store of {name}"), self._interleave
            )
            process = SimulatedProcess(self, name)
            self.processes[name] = process
            self.network.join(process)
            process.clock_drift = self._faults.drift
            process.start()
        return self.processes[name]

    def store_of(self, process: str) -> UnreliableBackend:
        """The way of a process to the store."""
        remedy = f"start it: world.process({process!r})"
        return self._stores[check_known("process", process, self._stores, remedy)]

    def group(self, name: str, topics: str) -> None:
        """Make a group, if it is not there. `GroupExists` if it consumes other topics."""
        open_group(self.ground, name, topics, "earliest", self._clock)
        self._groups[name] = topics

    def leader(self, group: str) -> SimulatedProcess | None:
        """The process that leads a group by the store, if it lives."""
        self._filter_of(group)
        entry = look(self.ground, group).entry
        if entry is None:
            return None
        process = self.processes[entry.process.rpartition(".")[0]]
        return process if process.alive and process.token == entry.process else None

    # What is done.

    def push(self, topic: str, value: Any, *, key: str | None = None) -> Receipt:
        """Push a message now."""
        receipt = self._topics.push(topic, value, key)
        partition = Partition(topic, receipt.storage, receipt.partition)
        self.checks.pushed(topic, key, partition, receipt.offset)
        return receipt

    def produce(
        self, topic: str, messages: Iterable[tuple[str | None, Any]], *, every_s: float
    ) -> None:
        """Push messages, given as keys and values, one every so often from now on."""
        self._topics.check(topic)
        check_seconds("every_s", every_s)
        for number, (key, value) in enumerate(check_pairs("messages", messages)):
            self.at(self.now + number * every_s, partial(self.push, topic, value, key=key))

    def scale(self, topic: str, partitions: int) -> None:
        """Scale a topic now."""
        self._topics.check_scale(topic, partitions)
        self.simulation.note(Mark.NOTE, "world", f"{topic} is scaled to {partitions}")
        self._topics.scale(topic, partitions)

    def seek(self, group: str, to: Any) -> None:
        """Send a group elsewhere now."""
        self._filter_of(group)
        target = parse_start(to, "to")
        self.simulation.note(Mark.NOTE, "world", f"{group} is sent to {to}")
        if to != "earliest":
            self.checks.strict_order = False
        seek(self.ground, group, target)

    def skip(self, group: str, position: str) -> None:
        """Pass over a message now, whether it is done or not."""
        self.simulation.note(Mark.NOTE, "world", f"{group} passes over {position}")
        unit, _, offset = position.partition("@")
        self.checks.passed_over(group, unit, int(offset))
        skip(self.ground, group, Position.parse(position))

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Do something at a time; at once if that has passed."""
        check_seconds("the time", seconds)
        check_callable("what is to be done", call, "a function without arguments")
        self.simulation.at(seconds, lambda: (call(), None)[1])

    def run(self, seconds: float) -> None:
        """Let time pass, with faults."""
        self._begin()
        self.simulation.run(seconds)

    def run_until(
        self, reached: Callable[[], bool], *, within_s: float, what: str = "the condition"
    ) -> float:
        """Let time pass until something is so; the seconds it took. `Violation` if it never is."""
        self._begin()
        return self.simulation.run_until(reached, within_s=within_s, what=what)

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self._begin()
        self._healed = True
        self._turmoil.heal()

    def settle(self, *, within_s: float = 120.0) -> float:
        """Heal, and let time pass until every message is consumed by every group and every unit
        has one owner; the seconds it took. Then nothing may be lost."""
        check_seconds("within_s", within_s)
        if not self._healed:
            self.heal()
        begun = self.now
        while (left_s := begun + within_s - self.now) > 0 and not self.settled():
            self.simulation.run(min(left_s, LOOK_S))
        if unsettled := self.unsettled():
            wrong = self.simulation.violation(f"after {within_s:g} s " + "; ".join(unsettled))
            raise wrong from self.checks.last_error
        took_s = self.now - begun
        for group in self._groups:
            audit = self.audit(group)
            if audit.lost and self.checks.strict_order:
                raise self.simulation.violation(f"{group} has lost {sorted(audit.lost)}")
        return took_s

    # What is seen.

    def settled(self) -> bool:
        """Whether all messages are consumed, and each unit that is open has one owner."""
        return not self.unsettled()

    def unsettled(self) -> list[str]:
        """What is not yet as it is to be once nothing goes wrong any more, in words."""
        found = []
        for group in self._groups:
            found += [f"{group} has not consumed {partition}" for partition in self._behind(group)]
            if not found and any(p.consumers_of(group) for p in self.processes.values()):
                found += [
                    f"{unit} of {group} is owned by {', '.join(owners) or 'nobody'}"
                    for unit, owners in self.owners(group).items()
                    if len(owners) != 1
                ]
        return found

    def consumed(self, group: str) -> bool:
        """Whether a group has acknowledged all messages of its topics."""
        return not self._behind(group)

    def owners(self, group: str) -> dict[str, list[str]]:
        """The sessions that own each open unit of a group."""
        self._filter_of(group)
        units = read_basis(self.ground, group).units
        return {
            unit.name: [holder.id for holder in self.checks.holders(group, unit.name)]
            for unit in units
            if unit.state is UnitState.OPEN
        }

    def audit(self, group: str) -> Audit:
        """What the group's handlers did, against what was pushed."""
        return self.checks.audit(group, self._topics.matching(self._filter_of(group)))

    def recorded(self, process: str, record: Record) -> None:
        """A leader recorded something."""
        self.history.append((self.now, process, record))

    def _filter_of(self, group: str) -> str:
        remedy = "make it by a consumer: world.process(NAME).consumer(GROUP, TOPICS)"
        return self._groups[check_known("group", group, self._groups, remedy)]

    def _behind(self, group: str) -> list[Partition]:
        topics = TopicFilter(self._filter_of(group))
        return [
            partition
            for partition in self.ground.records
            if topics.matches(partition.topic) and not self.ground.consumed(group, partition)
        ]

    # What happens around.

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._turmoil.begin()

    def _changed(self, change: Change, version: int) -> None:
        for process in self.processes.values():
            if process.alive:
                process.program.stir(change)

    def _appended(self, partition: Partition) -> None:
        for process in self.processes.values():
            if process.alive:
                process.records_came(partition)

    def _interleave(self) -> None:
        """Now and then let another process reach the store between a look and a commit."""
        if self._interleaving or self._healed or self._random.random() > 0.1:
            return
        self._interleaving = True
        alive = [p for p in self.processes.values() if p.alive]
        workers = [worker for process in alive for worker in process.program.workers]
        if workers:
            self._random.choice(workers).hurry()
        self._interleaving = False
