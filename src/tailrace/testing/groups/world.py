"""A hub whose processes and faults are all simulated, for tests of handlers and of groups.

    world = GroupWorld(seed=7, faults=Faults(crash_every_s=5))
    world.topic("orders", partitions=4)
    for name in ("a", "b", "c"):
        world.process(name).consumer("billing", "orders", handler=charge)
    world.produce("orders", keys=10, every_s=0.05, seconds=30)
    world.run(30)
    world.settle()

Everything that groups promise is checked at every step; a `Violation` names the seed and shows what
happened last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tailrace.backend.contract import Change
from tailrace.group.actions import Record
from tailrace.group.definition import TopicFilter
from tailrace.group.delivery import Delivery
from tailrace.group.grants import look
from tailrace.group.opening import open_group
from tailrace.group.sending import seek
from tailrace.group.streams import read_basis
from tailrace.group.times import Times
from tailrace.group.unit import UnitState
from tailrace.hub import Hub
from tailrace.message import Message, Partition, Receipt
from tailrace.payload import Payload
from tailrace.testing.auditor import Audit
from tailrace.testing.faults import Faults, Turmoil
from tailrace.testing.groups.checks import Checks
from tailrace.testing.groups.ground import Ground
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.groups.session import Consuming, SimulatedSession
from tailrace.testing.network import Network
from tailrace.testing.process import Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark, Trace
from tailrace.testing.unreliable import UnreliableBackend
from tailrace.topic.topic import Topic

LOOK_S: Final = 0.5
"""How often it is looked whether a world has settled."""


def doubling(attempt: int) -> float:
    """0.1 s after the first attempt, then twice as long each time, at most 5 s."""
    return min(0.1 * 2.0 ** (attempt - 1), 5.0)


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
        self._clock = _WorldClock(self.simulation)
        self._hub = Hub.from_backend(self.ground, clock=self._clock)
        self._topics: dict[str, Topic[Any]] = {}
        self._payloads: dict[str, Payload[Any]] = {}
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
        self._topics[name] = self._hub.create_topic(name, type, partitions=partitions)
        content_type = self._topics[name].view.definition.content_type
        self._payloads[name] = Payload(type, content_type)

    def decode(self, message: Message[Any]) -> Any:
        """The value of a message of any topic."""
        return self._payloads[message.topic].decode_message(message)

    def process(self, name: str) -> SimulatedProcess:
        """Start a process, or find it."""
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
        return self._stores[process]

    def group(self, name: str, topics: str) -> None:
        """Make a group, if it is not there."""
        if name not in self._groups:
            open_group(self.ground, name, topics, "earliest", self._clock)
            self._groups[name] = topics

    def leader(self, group: str) -> SimulatedProcess | None:
        """The process that leads a group by the store, if it lives."""
        entry = look(self.ground, group).entry
        if entry is None:
            return None
        process = self.processes[entry.process.rpartition(".")[0]]
        return process if process.alive and process.token == entry.process else None

    # What is done.

    def push(self, topic: str, value: Any, *, key: str | None = None) -> Receipt:
        """Push a message now."""
        receipt = self._topics[topic].push(value, key=key)
        partition = Partition(topic, receipt.storage, receipt.partition)
        self.checks.pushed(topic, key, partition, receipt.offset)
        return receipt

    def produce(self, topic: str, *, keys: int, every_s: float, seconds: float) -> None:
        """Push a number to a random one of so many keys, every so often, for a while."""
        count = round(seconds / every_s)
        for number in range(count):
            key = f"k{self._random.randrange(keys)}"
            at = self.now + number * every_s
            self.at(at, partial(self.push, topic, number, key=key))

    def scale(self, topic: str, partitions: int) -> None:
        """Scale a topic now."""
        self.simulation.note(Mark.NOTE, "world", f"{topic} is scaled to {partitions}")
        self._topics[topic].scale(partitions)

    def seek(self, group: str, to: Any) -> None:
        """Send a group elsewhere now."""
        self.simulation.note(Mark.NOTE, "world", f"{group} is sent to {to}")
        if to != "earliest":
            self.checks.strict_order = False
        seek(self.ground, group, to)

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Do something at a time."""
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
        if not self._healed:
            self.heal()
        begun = self.now
        while (left_s := begun + within_s - self.now) > 0 and not self.settled():
            self.simulation.run(min(left_s, LOOK_S))
        if unsettled := self.unsettled():
            raise self.simulation.violation(f"after {within_s:g} s " + "; ".join(unsettled))
        took_s = self.now - begun
        for group in self._groups:
            audit = self.audit(group)
            if audit.lost and self.checks.strict_order:
                raise self.simulation.violation(f"{group} has lost {sorted(audit.lost)}")
            if audit.displaced:
                raise self.simulation.violation(f"{group} saw {sorted(audit.displaced)} elsewhere")
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
        units = read_basis(self.ground, group).units
        return {
            unit.name: [holder.id for holder in self.checks.holders(group, unit.name)]
            for unit in units
            if unit.state is UnitState.OPEN
        }

    def audit(self, group: str) -> Audit:
        """What the group's handlers did, against what was pushed."""
        return self.checks.audit(group, set(self._topics_of(group)))

    def recorded(self, process: str, record: Record) -> None:
        """A leader recorded something."""
        self.history.append((self.now, process, record))

    def _topics_of(self, group: str) -> list[str]:
        matching = TopicFilter(self._groups[group])
        return [topic for topic in self._topics if matching.matches(topic)]

    def _behind(self, group: str) -> list[Partition]:
        topics = TopicFilter(self._groups[group])
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


class SimulatedProcess(Process):
    """A process of a `GroupWorld`, with consumers that come back when it does."""

    program: GroupProgram

    def __init__(self, world: GroupWorld, name: str) -> None:
        super().__init__(world.simulation, name, self._make)
        self._world = world
        self._consumers: dict[str, Consumer] = {}
        self._random = world.simulation.random(f"waking of {name}")

    def consumer(
        self,
        group: str,
        topics: str,
        *,
        handler: Callable[[Delivery[Any]], object] | None = None,
        takes_s: float | tuple[float, float] = (0.001, 0.02),
        concurrency: int = 1,
        attempts: int = 8,
        retry_s: Callable[[int], float] = doubling,
        revoke_timeout_s: float = 35.0,
        progress_interval_s: float = 1.0,
    ) -> Consumer:
        """A consumer in this process, that joins the group now and after every restart.

        `handler` is called with each delivery when its time, `takes_s`, has passed. When it raises
        an error, the message comes again after `retry_s` of the attempt, at most `attempts` times;
        the back-off costs no real time. It may also `nack` the delivery itself.
        """
        self._world.group(group, topics)
        span = takes_s if isinstance(takes_s, tuple) else (takes_s, takes_s)
        consuming = Consuming(
            group, handler, span, concurrency, attempts, retry_s, revoke_timeout_s,
            progress_interval_s,
        )  # fmt: skip
        consumer = Consumer(self, f"{group}-{len(self._consumers) + 1}", consuming)
        self._consumers[consumer.name] = consumer
        consumer.join()
        return consumer

    def consumers_of(self, group: str) -> list[Consumer]:
        """Those that want to consume here."""
        return [c for c in self._consumers.values() if c.group == group and c.wanted]

    def records_came(self, partition: Partition) -> None:
        """Let those that own the partition hear of it a little later."""
        unit = str(partition)
        if any(session.owns(unit) for session in self.program.sessions.values()):
            delay_s = self._random.uniform(0, 0.002)
            self.after(delay_s, lambda: self.program.wake([partition]))

    def start(self) -> None:
        """Begin a new life; its consumers join again."""
        super().start()
        for consumer in self._consumers.values():
            consumer.session = None
            if consumer.wanted:
                consumer.join()

    def _make(self, process: Process) -> GroupProgram:
        return GroupProgram(self._world, self)


class Consumer:
    """A consumer as a test holds it, over all lives of its process."""

    def __init__(self, process: SimulatedProcess, name: str, consuming: Consuming) -> None:
        self.process = process
        self.name = name
        self.group = consuming.group
        self.wanted = True
        """Whether it wants to consume: it has not left."""
        self.session: SimulatedSession | None = None
        self._consuming = consuming
        self._joined = 0

    def join(self) -> None:
        """Join the group, again if it had left; a dead process does so when it starts."""
        self.wanted = True
        if self.process.alive:
            self._joined += 1
            name = f"{self.name}.{self._joined}"
            self.session = self.process.program.subscribe(name, self._consuming)

    def leave(self) -> None:
        """Leave as one should: what is in hand is finished and kept."""
        self.wanted = False
        if self.session is not None and self.process.alive:
            self.process.program.unsubscribe(self.session.id)

    def die(self) -> None:
        """Be gone inside a process that lives on."""
        self.wanted = False
        if self.session is not None and self.process.alive:
            self.process.program.kill(self.session.id)
            self.session = None

    @property
    def units(self) -> list[str]:
        """The units that it owns now."""
        return [] if self.session is None else sorted(self.session.units)


class _WorldClock:
    """The clock of those who push."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self._simulation.now * 1000)

    def monotonic(self) -> float:
        return self._simulation.now
