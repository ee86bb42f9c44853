"""A hub with simulated processes and faults, for tests of handlers and groups.

    world = GroupWorld(seed=7, faults=Faults(crash_every_s=5))
    world.topic("orders", partitions=4)
    for name in ("a", "b", "c"):
        world.process(name).consumer("billing", "orders", handler=charge)
    world.produce("orders", [("c7", 1), ("c8", 1), ("c7", 2)], every_s=0.5)
    world.run(30)
    world.run_until_consumed()

Every guarantee of groups is checked at every step. A `Violation` names the seed and shows the last
events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from tailrace.backend.contract import Change
from tailrace.group.protocol.actions import WriteHistory
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import TopicFilter
from tailrace.group.store.grants import find_leader
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.seek import seek, skip
from tailrace.group.store.start import parse_start
from tailrace.group.store.streams import read_basis
from tailrace.hub.hub import Hub
from tailrace.message import Message, Partition, Position, Receipt
from tailrace.testing.arguments import (
    check_callable,
    check_known,
    check_pairs,
    check_seconds,
)
from tailrace.testing.auditor import Audit
from tailrace.testing.faults import FaultInjector, Faults
from tailrace.testing.groups.checks import Checks
from tailrace.testing.groups.consumer import SimulatedProcess
from tailrace.testing.groups.storage import SimulatedStorage
from tailrace.testing.groups.topics import Topics, WorldClock
from tailrace.testing.network import Network
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark, Trace
from tailrace.testing.unreliable import UnreliableBackend
from tailrace.topic.composite import check_name

CHECK_S: Final = 0.5
"""How often `run_until_consumed` checks whether everything is consumed."""


class GroupWorld:
    """A simulated hub. Time passes in `run`, `run_until` and `run_until_consumed` only.

    Without `faults` there are no faults but those of the test itself.
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
        self.storage = SimulatedStorage(self.checks.mark_written, self._changed, self._appended)
        self.checks.storage = self.storage
        self.history: list[tuple[float, str, WriteHistory]] = []
        """The history that leaders wrote: time, process, entry."""
        self.processes: dict[str, SimulatedProcess] = {}
        self._faults = faults or Faults()
        self._clock = WorldClock(self.simulation)
        hub = Hub.from_backend(self.storage, clock=self._clock)
        self._topics = Topics(hub, self.simulation.random("keyless messages"))
        self._stores: dict[str, UnreliableBackend] = {}
        self._groups: dict[str, str] = {}
        self._injector = FaultInjector(
            self.simulation, self._faults, self.network, self.processes, self.store_of
        )
        self._random = self.simulation.random("world")
        self._interleaving = False
        self._begun = False
        self._healed = False

    @property
    def now(self) -> float:
        """The virtual seconds since the start."""
        return self.simulation.now

    # Topics, processes and groups.

    def topic(self, name: str, type: Any = None, *, partitions: int = 4) -> None:
        """Create a topic. Handlers receive its values decoded as this type."""
        self._topics.create(name, type, partitions)

    def decode(self, message: Message[Any]) -> Any:
        """Return the value of a message of any topic."""
        return self._topics.decode(message)

    def process(self, name: str) -> SimulatedProcess:
        """Return the process of this name; start it if it does not exist."""
        check_name("process", name)
        if name not in self.processes:
            self._stores[name] = UnreliableBackend(
                self.storage, self.simulation.random(f"store of {name}"), self._interleave
            )
            process = self._make_process(name)
            self.processes[name] = process
            self.network.join(process)
            process.clock_drift = self._faults.drift
            process.start()
        return self.processes[name]

    def _make_process(self, name: str) -> SimulatedProcess:
        return SimulatedProcess(self, name)

    def store_of(self, process: str) -> UnreliableBackend:
        """Return the backend as a process sees it."""
        remedy = f"start it: world.process({process!r})"
        return self._stores[check_known("process", process, self._stores, remedy)]

    def group(self, name: str, topics: str) -> None:
        """Create a group, if it does not exist. `GroupExists` if it consumes other topics."""
        open_group(self.storage, name, topics, "earliest", self._clock)
        self._groups[name] = topics

    def leader(self, group: str) -> SimulatedProcess | None:
        """Return the process that leads a group, by the store, if it is alive."""
        self._filter_of(group)
        entry = find_leader(self.storage, group).entry
        if entry is None:
            return None
        process = self.processes[entry.process.rpartition(".")[0]]
        return process if process.alive and process.token == entry.process else None

    # Operations.

    def push(self, topic: str, value: Any, *, key: str | None = None) -> Receipt:
        """Push a message now."""
        receipt = self._topics.push(topic, value, key)
        partition = Partition(topic, receipt.storage, receipt.partition)
        self.checks.pushed(topic, key, partition, receipt.offset)
        return receipt

    def produce(
        self, topic: str, messages: Iterable[tuple[str | None, Any]], *, every_s: float
    ) -> None:
        """Push messages, given as keys and values, at intervals from now on."""
        self._topics.check(topic)
        check_seconds("every_s", every_s)
        for number, (key, value) in enumerate(check_pairs("messages", messages)):
            self.at(self.now + number * every_s, partial(self.push, topic, value, key=key))

    def scale(self, topic: str, partitions: int) -> None:
        """Scale a topic now."""
        self._topics.check_scale(topic, partitions)
        self.simulation.record(Mark.NOTE, "world", f"scale {topic} to {partitions}")
        self._topics.scale(topic, partitions)

    def seek(self, group: str, to: Any) -> None:
        """Seek a group now."""
        self._filter_of(group)
        target = parse_start(to, "to")
        self.simulation.record(Mark.NOTE, "world", f"seek {group} to {to}")
        if to != "earliest":
            self.checks.strict_order = False
        seek(self.storage, group, target)

    def skip(self, group: str, position: str) -> None:
        """Skip a message now, whether it was handled or not. `OutOfRange` if there is none."""
        self._filter_of(group)
        skip(self.storage, group, Position.parse(position))
        self.simulation.record(Mark.NOTE, "world", f"skip {position} in {group}")
        unit, _, offset = position.rpartition("@")
        self.checks.skipped(group, unit, int(offset))

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Schedule a call at a time; at once if that has passed."""
        check_seconds("the time", seconds)
        check_callable("what to call", call, "a function without arguments")
        self.simulation.at(seconds, lambda: (call(), None)[1])

    def run(self, seconds: float) -> None:
        """Let time pass, with faults."""
        self._begin()
        self.simulation.run(seconds)

    def run_until(
        self, reached: Callable[[], bool], *, within_s: float, what: str = "the condition"
    ) -> float:
        """Let time pass until a condition is true. Returns the seconds it took. `Violation` if the
        condition is not true in time."""
        self._begin()
        return self.simulation.run_until(reached, within_s=within_s, what=what)

    def heal(self) -> None:
        """End all faults."""
        self._begin()
        self._healed = True
        self._injector.heal()

    def run_until_consumed(self, *, within_s: float = 120.0) -> float:
        """End all faults, and let time pass until every group has consumed every message and every
        unit has one owner. Returns the seconds it took. `Violation` if a message was lost."""
        check_seconds("within_s", within_s)
        if not self._healed:
            self.heal()
        begun = self.now
        while (left_s := begun + within_s - self.now) > 0 and self.outstanding():
            self.simulation.run(min(left_s, CHECK_S))
        if outstanding := self.outstanding():
            wrong = self.simulation.violation(f"after {within_s:g} s " + "; ".join(outstanding))
            raise wrong from self.checks.last_error
        took_s = self.now - begun
        for group in self._groups:
            audit = self.audit(group)
            if audit.lost and self.checks.strict_order:
                raise self.simulation.violation(f"{group} has lost {sorted(audit.lost)}")
        return took_s

    # Observations.

    def outstanding(self) -> list[str]:
        """Describe the partitions that are not consumed and the units without one owner."""
        found = []
        for group in self._groups:
            found += [
                f"{group} has not consumed {partition}" for partition in self._unconsumed(group)
            ]
            if not found and any(p.consumers_of(group) for p in self.processes.values()):
                found += [
                    f"{unit} of {group} is owned by {', '.join(owners) or 'nobody'}"
                    for unit, owners in self.owners(group).items()
                    if len(owners) != 1
                ]
        return found

    def consumed(self, group: str) -> bool:
        """True if a group has acknowledged all messages of its topics."""
        return not self._unconsumed(group)

    def owners(self, group: str) -> dict[str, list[str]]:
        """Return the sessions that own each open unit of a group."""
        self._filter_of(group)
        units = read_basis(self.storage, group).units
        return {
            unit.name: [holder.id for holder in self.checks.owners(group, unit.name)]
            for unit in units
            if unit.state is UnitState.OPEN
        }

    def audit(self, group: str) -> Audit:
        """Compare the messages that a group handled with those that were pushed."""
        return self.checks.audit(group, self._topics.matching(self._filter_of(group)))

    def recorded(self, process: str, record: WriteHistory) -> None:
        """Record an entry that a leader wrote to the history."""
        self.history.append((self.now, process, record))

    def _filter_of(self, group: str) -> str:
        remedy = "make it by a consumer: world.process(NAME).consumer(GROUP, TOPICS)"
        return self._groups[check_known("group", group, self._groups, remedy)]

    def _unconsumed(self, group: str) -> list[Partition]:
        topics = TopicFilter(self._filter_of(group))
        return [
            partition
            for partition in self.storage.records
            if topics.matches(partition.topic) and not self.storage.consumed(group, partition)
        ]

    # Events of the storage.

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._injector.begin()

    def _changed(self, change: Change, version: int) -> None:
        for process in self.processes.values():
            if process.alive:
                process.program.store_changed(change)

    def _appended(self, partition: Partition) -> None:
        for process in self.processes.values():
            if process.alive:
                process.program.wake_soon([partition])

    def _interleave(self) -> None:
        """Sometimes let another process reach the store between a read and a commit."""
        if self._interleaving or self._healed or self._random.random() > 0.1:
            return
        self._interleaving = True
        alive = [p for p in self.processes.values() if p.alive]
        workers = [worker for process in alive for worker in process.program.workers]
        if workers:
            self._random.choice(workers).hurry()
        self._interleaving = False
