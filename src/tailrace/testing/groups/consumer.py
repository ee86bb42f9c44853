"""Processes and consumers of a `GroupWorld`, over all their lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.delivery.delivery import Delivery
from tailrace.testing.groups.handling import ConsumingOptions
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.groups.session import SimulatedSession
from tailrace.testing.process import Process

if TYPE_CHECKING:
    from tailrace.testing.groups.world import GroupWorld


def doubling(attempt: int) -> float:
    """Return 0.1 s for the first attempt, then twice as long each time, at most 5 s."""
    return min(0.1 * 2.0 ** (attempt - 1), 5.0)


class SimulatedProcess(Process):
    """A process of a `GroupWorld`. Its consumers join again when it restarts."""

    program: GroupProgram

    def __init__(self, world: GroupWorld, name: str) -> None:
        super().__init__(world.simulation, name, self._make)
        self._world = world
        self._consumers: dict[str, Consumer] = {}

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
        """Add a consumer to this process. It joins the group now and after every restart.

        `handler` is called with each delivery after its time, `takes_s`, has passed. If it raises
        an error, the message is redelivered after `retry_s` of the attempt, up to `attempts`
        attempts; the delay costs no real time. The handler may also `ack` or `nack` the delivery.
        """
        span = takes_s if isinstance(takes_s, tuple) else (takes_s, takes_s)
        consuming = ConsumingOptions(
            group, handler, span, concurrency, attempts, retry_s, revoke_timeout_s,
            progress_interval_s,
        )  # fmt: skip
        self._world.group(group, topics)
        consumer = Consumer(self, f"{group}-{len(self._consumers) + 1}", consuming)
        self._consumers[consumer.name] = consumer
        consumer.join()
        return consumer

    def consumers_of(self, group: str) -> list[Consumer]:
        """Return the consumers of a group in this process that have not left."""
        return [c for c in self._consumers.values() if c.group == group and c.wanted]

    def start(self) -> None:
        """Begin a new life. The consumers join again."""
        super().start()
        for consumer in self._consumers.values():
            consumer.session = None
            if consumer.wanted:
                consumer.join()

    def _make(self, process: Process) -> GroupProgram:
        return GroupProgram(self._world, self)


class Consumer:
    """A consumer of a simulated process, over all lives of the process."""

    def __init__(self, process: SimulatedProcess, name: str, consuming: ConsumingOptions) -> None:
        self.process = process
        self.name = name
        self.group = consuming.group
        self.wanted = True
        """True unless the consumer has left."""
        self.session: SimulatedSession | None = None
        self._consuming = consuming
        self._joined = 0

    def join(self) -> None:
        """Join the group, also after `leave`. In a dead process, the consumer joins at its start.

        Does nothing if the consumer is a member already.
        """
        there = self.wanted and self.session is not None
        self.wanted = True
        if self.process.alive and not there:
            self._joined += 1
            self.session = self._begin(f"{self.name}.{self._joined}")

    def _begin(self, name: str) -> SimulatedSession:
        return self.process.program.subscribe(name, self._consuming)

    def leave(self) -> None:
        """Leave in an orderly way: messages in flight are handled and acknowledged first."""
        self.wanted = False
        if self.session is not None and self.process.alive:
            self.process.program.unsubscribe(self.session.id)

    def die(self) -> None:
        """End without leaving, in a process that continues."""
        self.wanted = False
        if self.session is not None and self.process.alive:
            self.process.program.kill(self.session.id)
            self.session = None

    @property
    def units(self) -> list[str]:
        """The units that the consumer owns now."""
        return [] if self.session is None else sorted(self.session.units)
