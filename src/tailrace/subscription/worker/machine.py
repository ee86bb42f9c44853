"""The decisions of a worker about its shards: which message is called next, and when.

Pure: no lock, thread, clock or backend, and so the same in a process and in a simulation. A driver
does the steps of each shard, see `ShardMachine`, calls what `next_call` returns, and stores the
commits of `to_commit` at once and of `unsaved` within the progress interval. Calls that return
events do so for the driver to post them to the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final, Generic, TypeVar

from tailrace.delivery.outcome import CallOutcome
from tailrace.group.protocol.events import Drained, Event, Lost, Progressed
from tailrace.message import Partition
from tailrace.subscription.shard.commit import ShardCommit
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.worker.owned_shard import OwnedShard

BACKOFF_S: Final = 0.2
"""How long a shard waits before it retries after the backend failed."""

S = TypeVar("S", bound=OwnedShard)


class WorkerMachine(Generic[S]):
    """The shards of one worker. `notify` is called when a driver that waits has something to do."""

    def __init__(
        self,
        session: str,
        options: ShardOptions,
        *,
        make_shard: Callable[[str, int], S],
        notify: Callable[[], None],
    ) -> None:
        self.session = session
        self.options = options
        self.shards: dict[str, S] = {}
        """The shards that the worker owns, by name."""
        self.in_flight = 0
        """The number of calls under way, those of shards that were lost meanwhile included."""
        self._suspects = 0
        self.version = 0
        """Increased by every event that a waiting driver has to check."""
        self.definitions = 0
        """The number of changes of the subscription's definition. A shard that has read the
        definition before the last one has to read it again."""
        self._make_shard = make_shard
        self._notify = notify

    # What the runtime grants and revokes.

    def install(self, unit: str, epoch: int) -> None:
        """Add a granted shard."""
        self._remove(self.shards.get(unit))
        self.shards[unit] = self._make_shard(unit, epoch)
        self.interrupt()

    def drain(self, unit: str, epoch: int) -> Drained | None:
        """Call no more messages of a shard.

        Once no call of it is under way, its final commit returns `Drained`. It is returned at once
        if nothing is to be stored.
        """
        owned = self.find(unit, epoch)
        if owned is not None:
            owned.machine.drain()
            self.interrupt()
            if not owned.machine.drained:
                return None
            owned.drain_reported = True
        return Drained(self.session, unit, epoch, 0)

    def drop(self, unit: str, epoch: int) -> None:
        """Remove a shard that the worker does not own any more."""
        self._remove(self.find(unit, epoch))
        self.interrupt()

    def find(self, unit: str, epoch: int) -> S | None:
        """Return the shard if the worker owns it at this epoch."""
        owned = self.shards.get(unit)
        return owned if owned is not None and owned.epoch == epoch else None

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again: they have more records, or an end."""
        partitions = list(partitions)
        for owned in self.shards.values():
            owned.machine.wake(partitions)
        self.interrupt()

    def redefine(self) -> None:
        """Have every shard read the definition of the subscription again."""
        self.definitions += 1
        self.interrupt()

    def interrupt(self) -> None:
        """Have the driver check everything again."""
        self.version += 1
        self._notify()

    # Calls.

    def next_call(self) -> tuple[S, Turn] | None:
        """Return the next message to call, with its shard; None if there is none now.

        A suspect has the worker for itself: nothing is called before all calls have ended, nor
        until its outcome is stored, or until it ends if its shard was lost meanwhile.
        """
        holder = next((each for each in self.shards.values() if each.machine.holds_alone), None)
        if holder is None:
            holder = next((each for each in self.shards.values() if each.machine.wants_alone), None)
            if holder is None:
                return None if self._suspects else self._next_shared()
            if self.in_flight:
                return None
            holder.machine.begin_alone()
            self.interrupt()
        return self._take(holder)

    def _next_shared(self) -> tuple[S, Turn] | None:
        if self.in_flight >= self.options.concurrency:
            return None
        for name, owned in self.shards.items():
            found = self._take(owned)
            if found is not None:
                self.shards[name] = self.shards.pop(name)  # the others have their turn first
                return found
        return None

    def _take(self, owned: S) -> tuple[S, Turn] | None:
        turn = owned.machine.take()
        if turn is None:
            return None
        self.in_flight += 1
        self._suspects += turn.alone
        return owned, turn

    def finished(
        self, owned: S, turn: Turn, outcome: CallOutcome, *, now: float, now_ms: int, random: float
    ) -> None:
        """Record the outcome of a call. That of a shard which was lost meanwhile has no effect."""
        self.in_flight -= 1
        self._suspects -= turn.alone
        if not owned.removed:
            owned.machine.finished(turn, outcome, now=now, now_ms=now_ms, random=random)
        self.interrupt()

    # Commits.

    def to_commit(self, now: float) -> list[S]:
        """Return the shards that wait for a commit."""
        return [
            owned
            for owned in self.shards.values()
            if owned.machine.commit_due and not owned.backs_off(now)
        ]

    def unsaved(self, now: float) -> list[S]:
        """Return the shards that have something to store."""
        return [
            owned
            for owned in self.shards.values()
            if owned.machine.unsaved and not owned.backs_off(now)
        ]

    def committed(
        self, owned: S, commit: ShardCommit, places: Sequence[tuple[Partition, int]]
    ) -> list[Event]:
        """Record that a commit is stored."""
        if owned.removed:
            return []
        owned.machine.committed(commit, places)
        self.interrupt()
        events: list[Event] = []
        progressed = Progressed(self.session, owned.name, owned.epoch, owned.mark, False)
        if progressed != owned.reported:
            owned.reported = progressed
            events.append(progressed)
        if owned.machine.drained and not owned.drain_reported:
            owned.drain_reported = True
            events.append(Drained(self.session, owned.name, owned.epoch, owned.mark))
        return events

    def not_committed(self, owned: S, commit: ShardCommit, now: float) -> None:
        """Record that nothing of a commit was written. It is tried again later."""
        if not owned.removed:
            owned.machine.not_committed(commit)
        self.failed(owned, now)

    def failed(self, owned: S, now: float) -> None:
        """Have a shard retry later: the backend failed."""
        owned.retry_at = now + BACKOFF_S
        if owned.machine.loaded:
            owned.machine.intake.unwatch()
        self.interrupt()

    def lost(self, owned: S) -> list[Event]:
        """Remove a shard whose commit was refused or has an unknown outcome: it is granted again,
        and starts from what is stored."""
        if owned.removed:
            return []
        self._remove(owned)
        self.interrupt()
        return [Lost(self.session, owned.name, owned.epoch)]

    def due_at(self, now: float) -> float:
        """Return when to check again although nothing happened; infinity for never."""
        return min((owned.due(now) for owned in self.shards.values()), default=inf)

    def _remove(self, owned: S | None) -> None:
        if owned is not None and self.shards.get(owned.name) is owned:
            owned.removed = True
            del self.shards[owned.name]
