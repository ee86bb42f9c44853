"""The decisions of the owner of one shard: what to read, what to call, where a message goes, what
is stored together.

Pure: no lock, thread, clock or backend. A driver calls the machine, one call at a time, does the
I/O that `step` asks for, and brings the result back: `load`, `fetched`, `fetched_again`,
`attempts_read` and `requests.removed`. It calls the handlers of the turns that `take` returns, and
reports each by `finished`. Beside that, whenever `commit_due`, it stores the commit of
`start_commit` in one transaction under the fence of the grant, and calls `committed`, or
`not_committed` if nothing was written. If the outcome is unknown, or the fence was raised, it drops
the machine: the next owner starts from what is stored.

The lanes show what was decided: a message that is to be appended to RQ lags there at once. The
ledgers show what is stored. A decision is not taken back: a commit that was not stored stays as a
whole, and goes first.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.outcome import CallOutcome, OutcomeKind
from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.calls import Calls
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.commit.marks import (
    acknowledge_calls,
    mark_calls,
    quiesce,
    unmark_calls,
)
from tailrace.subscription.shard.commit.outbox import Outbox
from tailrace.subscription.shard.intake import Filtering, Intake
from tailrace.subscription.shard.lag import KeyLag
from tailrace.subscription.shard.ledgers import Ledgers
from tailrace.subscription.shard.options import Acking, ShardOptions
from tailrace.subscription.shard.payloads import Payloads
from tailrace.subscription.shard.permits import Permits
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import LetterRequest
from tailrace.subscription.shard.requests.work import RequestWork
from tailrace.subscription.shard.step import ShardStep, StepKind
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.shard.takeover import Takeover
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.shard.turns import Turns
from tailrace.topic.ledger import Progress


class ShardMachine:
    """One shard at one owner, in the process `worker`. For one thread at a time."""

    lag: KeyLag
    ledgers: Ledgers
    intake: Intake
    filtering: Filtering
    requests: RequestWork
    counts: ShardCounts

    def __init__(self, options: ShardOptions, worker: str) -> None:
        self.options = options
        self.worker = worker
        self.paused = 0
        """The version of the pause; 0 if there is none. During a pause no message is called."""
        self.stopped = False
        """While True no message is called."""
        self.settled = True
        """False while calls run in the process, those that no shard knows any more included."""
        self.draining = False
        self.drained = False
        """True once the final commit is stored."""
        self.loaded = False
        """True once everything that is stored was read."""
        self._payloads = Payloads(options.payload_bytes_max)
        self._calls = Calls()
        self._outbox = Outbox(options.append_bytes_max)

    def load(self, takeover: Takeover, now: float, now_ms: int) -> None:
        """Start from what is stored."""
        assert not self.loaded
        self.loaded = True
        self.ledgers = Ledgers(takeover.ledgers)
        self.intake = Intake(takeover.streams, self.ledgers, takeover.permits, takeover.ended)
        self.lag = KeyLag(self.options.policy, takeover.streams)
        self.lag.add_lagging(Queue.RQ, takeover.rq)
        self.lag.add_lagging(Queue.DLQ, takeover.dlq)
        longest_s = self.options.retry.max.total_seconds()
        self._book = AttemptBook(takeover.attempts, takeover.ended, now, now_ms, longest_s)
        self.counts = takeover.counts.taken_over()
        self.filtering = Filtering(self.ledgers, self._book, self.counts)
        self._outbox.ready.attempts |= self._book.judged
        self.requests = RequestWork(
            self.options,
            self.lag,
            self.ledgers,
            self._book,
            self.counts,
            self._outbox,
            self._payloads,
        )
        self.requests.load(takeover.requests, takeover.request_states, now, now_ms)
        self._turns = Turns(
            self.options,
            lag=self.lag,
            intake=self.intake,
            book=self._book,
            calls=self._calls,
            outbox=self._outbox,
            payloads=self._payloads,
            requests=self.requests,
        )
        self._turns.throttle.restore(self.counts, now_ms - now * 1000)

    def follow(self, options: ShardOptions) -> None:
        """Continue with other options."""
        self.options = options
        if self.loaded:
            self._turns.follow(options)

    def fetched(
        self, partition: Partition, batch: FetchedBatch | None
    ) -> Sequence[tuple[int, int]]:
        """Take in the records of MQ that `step` asked for; None if there are no more. Returns the
        ranges of offsets that are never called: those without a record, and those that the filter
        has left out now."""
        stream = self.intake.fetched(partition, batch)
        if batch is None:
            return ()
        chosen, ready = self.options.filter, self._outbox.ready
        batch, passed = self.filtering.apply(chosen, batch, stream.suspects, ready)
        self._turns.add(batch, self.ledgers.unacknowledged(batch))
        return passed

    def fetched_again(self, batch: FetchedBatch) -> None:
        """Keep records that `step` asked for again."""
        self.intake.number(batch)
        self._payloads.add(batch)

    def attempts_read(self, origin: Origin, attempts: Attempts) -> None:
        """Take in the attempts that `step` asked for."""
        self._book.put(origin, attempts)

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions of MQ again: they have more records, or an end."""
        if self.loaded:
            self.intake.wake(partitions)

    def request(self, request: LetterRequest) -> None:
        """Carry out a request that was made since `load`, unless it is known already."""
        self.requests.add(request)

    def open(
        self,
        streams: ShardStreams,
        ledgers: Mapping[Partition, Progress],
        permits: Mapping[Partition, Permits],
        ended: Container[str],
    ) -> None:
        """Continue with more partitions, after a storage topic of MQ was opened."""
        self.ledgers.add(ledgers)
        self.lag.open(streams)
        self.intake.add(streams, permits, ended)

    def step(self, now: float) -> ShardStep:
        """Return what to do next. The driver does it and calls this again, until `WAIT`."""
        if self.tripped:
            return ShardStep(StepKind.PAUSE)
        if self.draining:
            return ShardStep(StepKind.WAIT)
        if not self.loaded:
            return ShardStep(StepKind.LOAD)
        missing = self._turns.advance(now)
        if missing is not None:
            return ShardStep(StepKind.READ_AGAIN, *missing)
        if self._turns.unread is not None:
            return ShardStep(StepKind.READ_ATTEMPTS, *self._turns.unread)
        if self.requests.to_remove:
            return ShardStep(StepKind.REMOVE_REQUEST)
        if self._calls.ready:
            return ShardStep(StepKind.CALL)
        stream = self._turns.next_read
        if stream is not None:
            return ShardStep(StepKind.READ, stream.partition, stream.read_from)
        return ShardStep(StepKind.WAIT)

    @property
    def due(self) -> float | None:
        """The time of the next attempt of a message that waits, or None. It is also None while no
        turn is taken because too many moves wait: their commit comes first."""
        if self.draining or not self.loaded:
            return None
        times = (self.lag.due if self._turns.may_move else None, self.requests.due, self._turns.due)
        return min((at for at in times if at is not None), default=None)

    @property
    def wants_alone(self) -> bool:
        """True if a message is to be called while nothing else is in flight in the process."""
        return not (self._closed or self._outbox.early) and self._calls.wants_alone

    @property
    def can_call(self) -> bool:
        """True if `take` would return a message, or `wants_alone`."""
        return self._calls.early or (not self._closed and self._calls.ready)

    @property
    def owes_calls(self) -> bool:
        """True if messages are acknowledged, or being so, and not called yet."""
        return self._calls.early or self._outbox.early

    @property
    def _closed(self) -> bool:
        """True if no message is called, except those that are acknowledged already."""
        ends = self.draining or self.paused or self.stopped or self.tripped
        return bool(ends or self._outbox.full or self._outbox.quiesces)

    @property
    def tripped(self) -> str:
        """Why the breaker wants the subscription to be paused; empty if it does not."""
        return self._turns.breaker.tripped if self.loaded else ""

    def pause(self, version: int) -> None:
        """Call no message while there is a pause of this version; 0 if there is none."""
        self.paused = version
        if version and self.loaded:
            self._turns.breaker.reset()

    @property
    def alone(self) -> Turn | None:
        """The message that is called alone, from `begin_alone` until its outcome is stored."""
        return self._calls.alone

    def begin_alone(self) -> None:
        """Prepare the call that `wants_alone`. Only with nothing in flight in the process. While it
        is `alone` nothing else is called there: if the worker ends, it was this message."""
        self._calls.begin_alone()

    def hold_letters(self, held: bool) -> None:
        """Call no dead letters for requests, except suspects; or call them again."""
        self._calls.letters_held = held

    def take(self) -> Turn | None:
        """Return a message to call now; None if there is none."""
        turn = self._calls.take_early() if self._closed else self._calls.take()
        if turn is not None:
            self.counts.emitted += turn.messages
        return turn

    def take_more(self, most: int) -> list[Turn]:
        """Return further messages for a call that takes several, at most so many."""
        found: list[Turn] = []
        while len(found) < most and self._calls.can_join and (turn := self.take()) is not None:
            found.append(turn)
        return found

    def split(self, turns: Sequence[Turn]) -> None:
        """Record that a call with several messages failed: each is called again by itself."""
        self._turns.split(turns)

    def finished(
        self, turn: Turn, outcome: CallOutcome, *, now: float, now_ms: int, random: float
    ) -> None:
        """Decide what follows the call of a message. `random` is from 0 up to, not including, 1."""
        self._calls.end(turn)
        self.counts.failed += outcome.kind in (OutcomeKind.RETRY, OutcomeKind.REJECT)
        if turn.early:
            self._ended_early(turn, outcome)
            return
        origin = turn.known_origin
        self._turns.count(turn, outcome.kind, now)
        if turn.alone:
            self._outbox.ready.ends_alone = self._outbox.urgent = True
        if outcome.kind is OutcomeKind.LATER:
            self.counts.emitted -= 1
            self._turns.postpone(turn, now, random)
            return
        self._book.acquit(origin)
        if outcome.kind in (OutcomeKind.SUCCESS, OutcomeKind.FILTERED):
            if outcome.kind is OutcomeKind.FILTERED:
                self.filtering.add()
            else:
                self.counts.acked += turn.messages
                self._outbox.ready.push(turn.outputs)
            self._turns.succeeded(turn, now)
            return
        turn.outputs.clear()
        self._turns.failed(turn, outcome, now=now, now_ms=now_ms, random=random)

    def drain(self) -> None:
        """Call no more. Once no call is under way, the final commit is due."""
        self.draining = True
        self.drained |= not self.loaded

    @property
    def commit_due(self) -> bool:
        """True if something waits for a commit."""
        if not self._may_commit:
            return False
        few = self.options.calls_ahead // 2
        wanted = self._calls.wants_permits(few) and not self._closed
        return bool(self._outbox.due or wanted or self._final or self._quiesces)

    @property
    def unsaved(self) -> bool:
        """True if a commit would store anything."""
        marks = bool(self._calls.unmarked) and not self._closed
        something = marks or bool(self._outbox.ready)
        return self.commit_due or (self._may_commit and something)

    @property
    def _may_commit(self) -> bool:
        return self.loaded and not self.drained and self._outbox.idle

    def start_commit(self) -> ShardCommit | None:
        """Return everything that is ready, for one transaction; None if there is nothing.

        One commit at a time: this, the transaction, and `committed` or `not_committed`.
        """
        if not self.loaded or self.drained:
            return None
        ready = self._outbox.collect()
        if self.options.acking is Acking.BEFORE_CALL and not self._closed:
            acknowledge_calls(ready, self._calls, lag=self.lag, book=self._book, counts=self.counts)
        ready.ledger = self.ledgers.stage(ready.acks)
        if self._final and not ready.early:
            ready.final = True
            unmark_calls(ready, (*self._calls.permitted, *ready.marked), self.intake)
        elif self._quiesces and not ready.early:
            quiesce(ready, self._calls, self.intake)
            ready.ends_alone |= self.alone is not None
            self.counts.quiet = self.paused
        elif not self._closed:
            mark_calls(
                ready,
                self.options,
                self.worker,
                calls=self._calls,
                lag=self.lag,
                intake=self.intake,
            )
        if not ready:
            return None
        self._turns.throttle.store(self.counts)
        ready.counts, ready.worker = replace(self.counts), self.worker
        self._outbox.begin(ready)
        return ready

    def committed(self, commit: ShardCommit, places: Sequence[tuple[Partition, int]]) -> None:
        """Record that a commit is stored. `places` are the partitions and offsets at which its
        moves were appended, in order."""
        self._outbox.stored(commit)
        self.ledgers.saved(commit.acks)
        for move, (partition, offset) in zip(commit.moves, places, strict=True):
            self.lag.arrived(move, partition, offset, self._book.pop_due(move.origin))
        for origin, attempts in commit.attempts.items():
            self._book.stored(origin, attempts)
        self.intake.permits_stored(commit.permitted)
        if commit.quiet:  # some may have been permitted by what it has removed
            self._calls.unmark(())
        self._calls.permit(commit.marked)
        if commit.ends_alone:
            self._calls.alone = None
        self.requests.stored(commit.ended)
        self.drained |= commit.final

    def not_committed(self, commit: ShardCommit) -> None:
        """Record that nothing of a commit was written. The next one has all of it."""
        self._outbox.not_stored(commit)
        if commit.quiet:
            self.counts.quiet = 0

    def _ended_early(self, turn: Turn, outcome: CallOutcome) -> None:
        """Record the end of a call whose message was acknowledged before. It is not retried."""
        self.counts.ended += 1
        self._outbox.ready.counted = True
        if outcome.kind is OutcomeKind.FILTERED:
            self.counts.acked -= 1
            self.filtering.add()
        self.lag.lanes[turn.queue].remove_head(turn.lane)
        if turn.alone:
            self._calls.alone = None  # its acknowledgement is stored, and nothing else

    @property
    def _final(self) -> bool:
        return self.draining and self._quiet

    @property
    def _quiet(self) -> bool:
        """True if no call is under way or must follow."""
        return not (self._calls.under_way or self.owes_calls)

    @property
    def _quiesces(self) -> bool:
        """True if nothing is in flight since a pause, and a commit has to say so."""
        return self.paused > self.counts.quiet and self._quiet and self.settled
