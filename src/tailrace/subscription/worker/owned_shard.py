"""The state of a shard that a worker was granted. Pure: no lock, thread, clock or backend."""

from __future__ import annotations

from math import inf

from tailrace.group.protocol.events import Progressed
from tailrace.subscription.shard.machine import ShardMachine
from tailrace.subscription.shard.options import ShardOptions


def generation_of(unit: str) -> str:
    """Return the number of the generation of a shard, ``1`` of ``1.3``."""
    return unit.partition(".")[0]


class OwnedShard:
    """A shard at an epoch, in the process `worker`. With the lock of its session, if threads share
    that."""

    def __init__(self, unit: str, epoch: int, options: ShardOptions, worker: str) -> None:
        self.name = unit
        self.epoch = epoch
        self.machine = ShardMachine(options, worker)
        self.in_flight = 0
        """The number of its messages in calls that are under way."""
        self.calls = 0
        """The number of its calls that are under way."""
        self.late_calls = 0
        """The number of its calls that were given up and still run in the process."""
        self.drain_waits = False
        """True while it is not drained because of them."""
        self.removed = False
        """True once the worker does not own the shard any more."""
        self.definitions = 0
        """The number of definitions of the worker when the shard read the last one."""
        self.retry_at = -inf
        """When to retry after the backend failed."""
        self.reported: Progressed | None = None
        """The progress that was posted last."""
        self.drain_reported = False
        """True once `Drained` was posted."""

    @property
    def has_room(self) -> bool:
        """True if another call of the shard may begin. Those that were given up count while they
        run: the endpoint may still work on them."""
        most = self.machine.options.calls_max
        return most is None or self.calls + self.late_calls < most

    @property
    def awaits_late_calls(self) -> bool:
        """True if the calls of another owner could be too many beside those that were given up."""
        return self.machine.options.calls_max is not None and self.late_calls > 0

    @property
    def can_call(self) -> bool:
        """True if one of its messages can be called now."""
        return self.machine.can_call and self.has_room

    @property
    def wants_alone(self) -> bool:
        """True if one of its messages is to be called now with nothing else in flight."""
        return self.machine.wants_alone and self.has_room

    @property
    def generation(self) -> str:
        """The number of its generation."""
        return generation_of(self.name)

    @property
    def stored(self) -> bool:
        """True if nothing is called any more, and all that was decided is stored."""
        return self.machine.drained or not self.machine.loaded

    def backs_off(self, now: float) -> bool:
        """True if the shard does not retry yet after the backend failed."""
        return now < self.retry_at

    def due(self, now: float) -> float:
        """Return when to check the shard again although nothing happened; infinity for never."""
        if self.backs_off(now):
            return self.retry_at
        due = self.machine.due
        return inf if due is None else due

    @property
    def filtered(self) -> int:
        """The number of its messages that did not pass a filter since it was granted."""
        return self.machine.filtering.filtered if self.machine.loaded else 0

    @property
    def mark(self) -> int:
        """A number that rises with the stored progress, for people."""
        machine = self.machine
        if not machine.loaded:
            return 0
        return sum(progress.mark for progress in machine.ledgers.stored.values())
