"""Processes and consumers of a `GroupWorld`, as tests hold them: over all their lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.group.delivery import Delivery
from tailrace.message import Partition
from tailrace.testing.groups.handling import Consuming
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.groups.session import SimulatedSession
from tailrace.testing.process import Process

if TYPE_CHECKING:
    from tailrace.testing.groups.world import GroupWorld


def doubling(attempt: int) -> float:
    """0.1 s after the first attempt, then twice as long each time, at most 5 s."""
    return min(0.1 * 2.0 ** (attempt - 1), 5.0)


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
        span = takes_s if isinstance(takes_s, tuple) else (takes_s, takes_s)
        consuming = Consuming(
            group, handler, span, concurrency, attempts, retry_s, revoke_timeout_s,
            progress_interval_s,
        )  # fmt: skip
        self._world.group(group, topics)
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
        """Join the group, again if it had left; a dead process does so when it starts.

        Does nothing where it takes part already.
        """
        there = self.wanted and self.session is not None
        self.wanted = True
        if self.process.alive and not there:
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
