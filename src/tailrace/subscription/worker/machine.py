"""The decisions of a worker about its shards: which message is called next, and when.

Pure: no lock, thread, clock or backend, and so the same in a process and in a simulation. A driver
does the steps of each shard, see `ShardMachine`, calls what `next_call` returns, and stores the
commits of `to_commit` at once and of `unsaved` within the progress interval. Calls that return
events do so for the driver to post them to the runtime.

A suspect has the whole process for itself: what is stored before its call names the process. So the
workers of a process share a `ProcessGate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, Generic, TypeVar

from tailrace.delivery.outcome import CallOutcome
from tailrace.delivery.process_gate import ProcessGate
from tailrace.group.protocol.events import Drained, Event, Lost, Progressed
from tailrace.message import Partition
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import SharedCall, Turn
from tailrace.subscription.worker.owned_shard import OwnedShard, generation_of

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
        self.stopped = False
        """While True no message is called."""
        self.filtered_before = 0
        """The number of messages of shards that it owned before which did not pass a filter."""
        self._suspects = 0
        self._letters = 0
        self._late: Counter[str] = Counter()
        """The number of calls that were given up and still run, by the name of their shard."""
        self._lost_calls: Counter[str] = Counter()
        """The number of messages in flight of shards that were lost, by the name of the shard."""
        self._settled = True
        self.version = 0
        """Increased by every event that a waiting driver has to check."""
        self.definitions = 0
        """The number of changes of the subscription's definition. A shard that has read the
        definition before the last one has to read it again."""
        self._make_shard = make_shard
        self._notify = notify
        self._claimed = False
        """True if it is alone in its process, or waits to be."""
        self.enter(ProcessGate(), notify)

    def enter(self, gate: ProcessGate, wake: Callable[[], None]) -> None:
        """Share a process with other workers, before the first call. `wake` has the driver ask for
        the next call again; unlike `notify` it is called while other workers decide."""
        self._gate, self._place = gate, gate.enter(wake)

    def leave(self) -> None:
        """Leave the process to its other workers. Calls that still run count as given up."""
        self._claimed = False
        self._gate.leave(self._place)

    # What the runtime grants and revokes.

    def install(self, unit: str, epoch: int) -> None:
        """Add a granted shard."""
        self._remove(self.shards.get(unit))
        owned = self.shards[unit] = self._make_shard(unit, epoch)
        owned.machine.stopped, owned.machine.settled = self.stopped, self._settled
        owned.late_calls = self._late[unit]
        owned.machine.hold_letters(self._letters >= self._letters_max)
        self.interrupt()

    def drain(self, unit: str, epoch: int) -> Drained | None:
        """Call no more messages of a shard.

        Once no call of it is under way, its final commit returns `Drained`. It is returned at once
        if nothing is to be stored. If it limits its calls, it waits for those that were given up,
        unless the worker ends.
        """
        owned = self.find(unit, epoch)
        if owned is not None:
            owned.drain_waits = owned.awaits_late_calls and not self.stopped
            owned.drain_waits &= owned.machine.loaded
            if owned.drain_waits:
                owned.machine.stopped = True
                return None
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
        self._settle()
        self.version += 1
        self._notify()

    def _settle(self) -> None:
        """Let other workers call again, if no suspect needs the process any more. After each
        suspect they have their turn."""
        if not self._claimed or self._suspects:
            return
        shards = self.shards.values()
        if any(each.machine.alone for each in shards):
            return
        if self._gate.is_alone(self._place) or not any(each.wants_alone for each in shards):
            self._claimed = False
            self._gate.release(self._place)

    # Calls.

    @property
    def can_call(self) -> bool:
        """True if `next_call` may return a message."""
        return self.in_flight < self.options.concurrency and any(
            owned.can_call for owned in self.shards.values()
        )

    def next_call(self) -> tuple[S, Turn] | None:
        """Return the next message to call, with its shard; None if there is none now.

        A suspect has its process for itself: nothing is called before all calls have ended, nor
        until its outcome is stored, or until it ends if its shard was lost meanwhile.
        """
        holder = next((each for each in self.shards.values() if each.machine.alone), None)
        if holder is None:
            holder = next((each for each in self.shards.values() if each.wants_alone), None)
            if holder is None:
                self._settle()
                return None if self._suspects else self._next_shared()
            self._claimed = True
            if not self._gate.claim(self._place) or self.in_flight:
                return None
            holder.machine.begin_alone()
            self.interrupt()
        return self._take([holder])

    def forgo(self) -> None:
        """Record that nothing is called now, whatever waits: other workers of the process need not
        wait for this one."""
        if self._claimed and not self._gate.is_alone(self._place):
            self._claimed = False
            self._gate.release(self._place)
        self._gate.forgo(self._place)

    def take_more(self, owned: S, first: Turn, most: int) -> list[Turn]:
        """Return further messages of a shard for the call of `first`, at most so many."""
        call = first.call
        assert call is not None
        room = self.options.concurrency - self.in_flight
        turns: list[Turn] = []
        while len(turns) < min(most, room) and (more := owned.machine.take_more(1)):
            turns += more
            for turn in more:
                turn.call = call
            call.turns += len(more)
            self._count(owned, more, 1)
        self._gate.join(self._place, len(turns))
        return turns

    def split(self, owned: S, turns: Sequence[Turn]) -> None:
        """Record that a call with several messages failed: each is called again by itself."""
        self._end(owned, turns)
        if not owned.removed:
            owned.machine.split(turns)
        self.interrupt()

    def stop(self) -> None:
        """Call no more messages, except those that are acknowledged already."""
        self.stopped = True
        for owned in self.shards.values():
            owned.machine.stopped = True
        self.interrupt()

    @property
    def busy(self) -> bool:
        """True if calls are under way, or must follow because they are acknowledged."""
        early = any(owned.machine.owes_calls for owned in self.shards.values())
        return bool(self.in_flight) or early

    def _next_shared(self) -> tuple[S, Turn] | None:
        if self.in_flight >= self.options.concurrency:
            return None
        found = self._take(each for each in self.shards.values() if each.has_room)
        if found is not None:
            name = found[0].name
            self.shards[name] = self.shards.pop(name)  # the others have their turn first
        return found

    def _take(self, shards: Iterable[S]) -> tuple[S, Turn] | None:
        """Begin a call of the first of these shards that has one."""
        if not self._gate.begin(self._place):
            return None
        for owned in shards:
            turn = owned.machine.take()
            if turn is not None:
                turn.call = SharedCall()
                owned.calls += 1
                self._count(owned, (turn,), 1)
                return owned, turn
        self._gate.end(self._place)
        return None

    def _end(self, owned: S, turns: Sequence[Turn]) -> None:
        self._count(owned, turns, -1)
        for turn in turns:
            assert turn.call is not None
            turn.call.turns -= 1
            owned.calls -= not turn.call.turns
        if owned.removed:
            self._lost_calls[owned.name] -= sum(turn.messages for turn in turns)
        self._gate.end(self._place, len(turns))

    def _count(self, owned: S, turns: Sequence[Turn], sign: int) -> None:
        """Count the messages in flight. Dead letters take at most half of the slots."""
        messages = sign * sum(turn.messages for turn in turns)
        owned.in_flight += messages
        self.in_flight += messages
        self._suspects += sign * sum(turn.alone for turn in turns)
        self._look_if_settled()
        letters = sign * sum(turn.queue is Queue.DLQ for turn in turns)
        if letters:
            self._letters += letters
            held = self._letters >= self._letters_max
            for owned in self.shards.values():
                owned.machine.hold_letters(held)

    def runs_late(self, calls: Mapping[str, int]) -> None:
        """Record how many calls were given up and still run, by the name of their shard."""
        self._late = Counter(calls)
        for name, owned in self.shards.items():
            owned.late_calls = self._late[name]
            if owned.drain_waits and not owned.late_calls:
                owned.machine.drain()
        self._look_if_settled()
        self.interrupt()

    @property
    def late(self) -> int:
        """The number of calls that were given up and still run."""
        return self._late.total()

    def _look_if_settled(self) -> None:
        """Tell the shards if nothing runs any more: only then a pause has drained them."""
        settled = not (self.in_flight or self.late)
        if settled is not self._settled:
            self._settled = settled
            for owned in self.shards.values():
                owned.machine.settled = settled

    @property
    def _letters_max(self) -> int:
        return max(1, self.options.concurrency // 2)

    def finished(
        self, owned: S, turn: Turn, outcome: CallOutcome, *, now: float, now_ms: int, random: float
    ) -> None:
        """Record the outcome of a call. That of a shard which was lost meanwhile has no effect."""
        self._end(owned, (turn,))
        if not owned.removed:
            owned.machine.finished(turn, outcome, now=now, now_ms=now_ms, random=random)
        self.interrupt()

    def may_load(self, owned: S) -> bool:
        """True unless calls of an earlier grant of the shard, or of shards of other generations,
        are under way here: a message of their keys would be called beside them."""
        running = {each.name for each in self.shards.values() if each.in_flight}
        running |= {name for name, calls in self._lost_calls.items() if calls}
        own = owned.generation
        return not any(name == owned.name or generation_of(name) != own for name in running)

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
        events = self.progressed(owned)
        if owned.machine.drained and not owned.drain_reported:
            owned.drain_reported = True
            events.append(Drained(self.session, owned.name, owned.epoch, owned.mark))
        return events

    def progressed(self, owned: S) -> list[Event]:
        """Return the progress of a shard, if it is not what was posted last."""
        ended = owned.machine.intake.ended
        progressed = Progressed(self.session, owned.name, owned.epoch, owned.mark, ended)
        if progressed == owned.reported:
            return []
        owned.reported = progressed
        return [progressed]

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
            self.filtered_before += owned.filtered
            self._lost_calls[owned.name] += owned.in_flight
            del self.shards[owned.name]
