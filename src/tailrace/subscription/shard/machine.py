"""The decisions of the owner of one shard: what to read, what to call, where a message goes, what
is stored together.

Pure: no lock, thread, clock or backend. A driver calls the machine, one call at a time, does the
I/O that `step` asks for, and brings the result back: `loaded`, `fetched`, `fetched_again`. It calls
the handlers of the turns that `take` returns, and reports each by `finished`. Beside that, whenever
`commit_due`, it stores the commit of `start_commit` in one transaction under the fence of the
grant, and calls `committed`, or `not_committed` if nothing was written. If the outcome is unknown,
or the fence was raised, it drops the machine: the next owner starts from what is stored.

The lanes show what was decided: a message that is to be appended to RQ lags there at once. The
ledgers show what is stored. A decision is not taken back: a commit that was not stored stays as a
whole, and goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.outcome import CallOutcome, OutcomeKind
from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import Attempts, Begun, Origin
from tailrace.subscription.shard.calls import Calls
from tailrace.subscription.shard.commit import FOLLOWS, Move, ShardCommit
from tailrace.subscription.shard.intake import HandedOut, Intake, MainStream
from tailrace.subscription.shard.lag import KeyLag
from tailrace.subscription.shard.ledgers import Ledgers, gaps
from tailrace.subscription.shard.moved_record import origin_of
from tailrace.subscription.shard.options import BOUND_STEPS, ShardOptions
from tailrace.subscription.shard.outbox import Outbox
from tailrace.subscription.shard.payloads import Payloads, RecordRow
from tailrace.subscription.shard.queues import MessageRoute, Queue
from tailrace.subscription.shard.step import ShardStep, StepKind
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.shard.takeover import Takeover
from tailrace.subscription.shard.turn import NO_ATTEMPTS, Turn
from tailrace.topic.ledger import Progress


class ShardMachine:
    """One shard at one owner, in the process `worker`. For one thread at a time."""

    lag: KeyLag
    ledgers: Ledgers
    intake: Intake

    def __init__(self, options: ShardOptions, worker: str) -> None:
        self.options = options
        self.worker = worker
        self.draining = False
        self.drained = False
        """True once the final commit is stored."""
        self.loaded = False
        """True once everything that is stored was read."""
        self._payloads = Payloads(options.payload_bytes_max)
        self._turns: deque[Turn] = deque()
        self._deliverable: deque[Turn] = deque()
        self._calls = Calls()
        self._outbox = Outbox()

    # What the driver reads for the shard.

    def load(self, takeover: Takeover, now: float, now_ms: int) -> None:
        """Start from what is stored."""
        assert not self.loaded
        self.loaded = True
        self.ledgers = Ledgers(takeover.ledgers)
        self.intake = Intake(takeover.streams, self.ledgers, takeover.handed_out)
        self.lag = KeyLag(self.options.policy, takeover.streams)
        self.lag.add_lagging(Queue.RQ, takeover.rq)
        self.lag.add_lagging(Queue.DLQ, takeover.dlq)
        longest_s = self.options.retry.max.total_seconds()
        self._book = AttemptBook(
            takeover.attempts, takeover.ended, now=now, now_ms=now_ms, longest_s=longest_s
        )
        self._outbox.ready.attempts |= self._book.judged

    def fetched(self, partition: Partition, batch: FetchedBatch | None) -> None:
        """Take in the records of MQ that `step` asked for; None if there are no more."""
        stream = self.intake[partition]
        if batch is None:
            stream.caught_up = True
            return
        assert batch.start == stream.read_from, "records of MQ are read in order"
        stream.read_from = batch.next_offset
        for first, after in gaps(batch):
            self._outbox.ready.ack(partition, first, after)
        self._payloads.add(batch)
        self.lag.add_messages(batch, self.ledgers.unacknowledged(batch))

    def fetched_again(self, batch: FetchedBatch) -> None:
        """Keep records that `step` asked for again."""
        self._payloads.add(batch)

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions of MQ again: they have more records, or an end."""
        if self.loaded:
            self.intake.wake(partitions)

    def open(
        self,
        streams: ShardStreams,
        ledgers: Mapping[Partition, Progress],
        handed_out: Mapping[Partition, HandedOut],
    ) -> None:
        """Continue with more partitions, after a storage topic of MQ was opened."""
        self.ledgers.add(ledgers)
        self.lag.open(streams)
        self.intake.add(streams, handed_out)

    # The steps.

    def step(self, now: float) -> ShardStep:
        """Return what to do next. The driver does it and calls this again, until `WAIT`."""
        if self.draining:
            return ShardStep(StepKind.WAIT)
        if not self.loaded:
            return ShardStep(StepKind.LOAD)
        missing = self._move_turns(now) or self._prepare(now)
        if missing is not None:
            return ShardStep(StepKind.READ_AGAIN, *missing)
        if self._calls.can_take or self._calls.wants_alone:
            return ShardStep(StepKind.CALL)
        stream = self._to_read()
        if stream is not None:
            return ShardStep(StepKind.READ, stream.partition, stream.read_from)
        return ShardStep(StepKind.WAIT)

    @property
    def due(self) -> float | None:
        """The time of the next attempt of a message that waits, or None."""
        return self.lag.due if self.loaded and not self.draining else None

    @property
    def wants_alone(self) -> bool:
        """True if a message is to be called while nothing else is in flight in the worker."""
        return not self.draining and self._calls.wants_alone

    @property
    def holds_alone(self) -> bool:
        """True from `begin_alone` until the outcome of that call is stored."""
        return self._calls.alone is not None

    @property
    def alone(self) -> Turn | None:
        """The message that is called alone, from `begin_alone` until its outcome is stored."""
        return self._calls.alone

    def begin_alone(self) -> None:
        """Prepare the call that `wants_alone`. Only with nothing in flight in the worker, and
        while `holds_alone` nothing else is called there: if the worker ends, it was this
        message."""
        self._calls.begin_alone()

    def take(self) -> Turn | None:
        """Return a message to call now; None if there is none."""
        return None if self.draining else self._calls.take()

    def finished(
        self, turn: Turn, outcome: CallOutcome, *, now: float, now_ms: int, random: float
    ) -> None:
        """Decide what follows the call of a message. `random` is from 0 up to, not including, 1."""
        self._calls.end(turn)
        origin = turn.known_origin
        if turn.alone:
            self._outbox.ready.ends_alone = self._outbox.urgent = True
            self._book.acquit(origin)
        if outcome.kind is OutcomeKind.SUCCESS:
            self._succeeded(turn, origin)
            return
        self._outbox.urgent = True
        delay = outcome.delay
        if delay is None:
            delay = self.options.retry.delay(turn.attempt, random)
        at = now + delay.total_seconds()
        due_ms = now_ms + int(delay.total_seconds() * 1000)
        attempts = turn.attempts.failed(outcome.error, now_ms, due_ms)
        if turn.queue is Queue.DLQ:
            self._put_attempts(origin, attempts)
            self.lag.lanes[Queue.DLQ].fail(turn.lane)
        elif outcome.kind is OutcomeKind.REJECT or self._used_up(attempts):
            self._move(turn, Queue.DLQ, attempts)
        elif turn.queue is Queue.MQ:
            self._book.wait(origin, at)
            self._move(turn, Queue.RQ, attempts)
        else:
            self._put_attempts(origin, attempts)
            self.lag.lanes[Queue.RQ].wait(turn.lane, at)

    def drain(self) -> None:
        """Call no more. Once no call is under way, the final commit is due."""
        self.draining = True
        self.drained |= not self.loaded

    # Commits.

    @property
    def commit_due(self) -> bool:
        """True if something waits for a commit."""
        return self._may_commit and (self._outbox.due or bool(self._calls.unmarked) or self._final)

    @property
    def unsaved(self) -> bool:
        """True if a commit would store anything."""
        return self.commit_due or (self._may_commit and bool(self._outbox.ready))

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
        if not self._final:
            self._add_marks(ready)
        ready.ledger = self.ledgers.stage(ready.acks)
        if self._final:
            self._add_finals(ready)
        if not ready:
            return None
        self._outbox.begin(ready)
        return ready

    def committed(self, commit: ShardCommit, places: Sequence[tuple[Partition, int]]) -> None:
        """Record that a commit is stored. `places` are the partitions and offsets at which its
        moves were appended, in order."""
        self._outbox.stored(commit)
        self.ledgers.saved(commit.acks)
        for move, (partition, offset) in zip(commit.moves, places, strict=True):
            self.lag.arrived(move, partition, offset, self._book.pop_due(move.origin))
        for partition, bound in commit.handed_out.items():
            self.intake[partition].stored_bound = bound
        self._calls.permit(commit.marked)
        if commit.ends_alone:
            self._calls.alone = None
        self.drained |= commit.final

    def not_committed(self, commit: ShardCommit) -> None:
        """Record that nothing of a commit was written. The next one has all of it."""
        self._outbox.not_stored(commit)

    def _add_marks(self, ready: ShardCommit) -> None:
        """Let the commit permit the calls that wait for it."""
        ahead = BOUND_STEPS * self.options.concurrency
        turns = self._calls.pop_unmarked()
        for turn in turns:
            if turn.queue is Queue.MQ and not turn.alone:
                partition, offset = self.lag.place(turn)
                bound = max(offset + 1 + ahead, self.intake[partition].stored_bound)
                ready.handed_out[partition] = max(bound, ready.handed_out.get(partition, 0))
            else:
                begun = Begun.ALONE if turn.alone else Begun.SHARED
                ready.attempts[turn.known_origin] = turn.attempts.begin(begun, self.worker)
        ready.marked += turns

    @property
    def _final(self) -> bool:
        return self.draining and not self._calls.under_way

    def _add_finals(self, ready: ShardCommit) -> None:
        """Let the commit remove what only an unclean end leaves behind."""
        ready.final = True
        for turn in (*self._calls.permitted, *ready.marked):
            if turn.alone:
                ready.attempts[turn.known_origin] = turn.attempts.begin(Begun.SHARED)
            elif turn.queue is not Queue.MQ:
                ready.attempts[turn.known_origin] = turn.attempts
        for stream in self.intake.streams:
            keep = stream.suspect_below
            if not self.ledgers.has_holes(stream.partition, keep):
                keep = 0
            if keep != stream.stored_bound or stream.partition in ready.handed_out:
                ready.handed_out[stream.partition] = keep

    # Turns.

    def _move_turns(self, now: float) -> tuple[Partition, int] | None:
        """Move the messages that older queues hold back, and pass on those that are delivered.

        Returns the place of a record that has to be read for it, or None.
        """
        while True:
            self._pop_turns(now)
            waiting, self._turns = self._turns, deque()
            moved = False
            for turn in waiting:
                route = self.lag.route(turn)
                if route is MessageRoute.DELIVER:
                    self._deliverable.append(turn)
                elif self._outbox_full or self._find(turn) is None:
                    self._turns.append(turn)
                else:
                    self._move(turn, Queue.RQ if route is MessageRoute.TO_RQ else Queue.DLQ, None)
                    moved = True
            if not moved:
                missing = next((turn for turn in self._turns if turn.record is None), None)
                return None if missing is None or self._outbox_full else self.lag.place(missing)

    def _pop_turns(self, now: float) -> None:
        for queue in (Queue.RQ, Queue.MQ, Queue.DLQ):
            while self._may_move:
                turn = self.lag.pop_turn(queue, now)
                if turn is None:
                    break
                if queue is Queue.DLQ:
                    self.lag.lanes[queue].fail(turn.lane)  # parked, until somebody redelivers it
                else:
                    self._turns.append(turn)

    @property
    def _may_move(self) -> bool:
        many = len(self._turns) + self._outbox.moves >= self.options.moves_max
        return not (many or self._outbox_full)

    @property
    def _outbox_full(self) -> bool:
        return self._outbox.move_bytes >= self.options.move_bytes_max

    def _prepare(self, now: float) -> tuple[Partition, int] | None:
        """Prepare some calls ahead. Returns the place of a record that has to be read for it."""
        while self._deliverable and self._calls.prepared < self.options.concurrency:
            turn = self._deliverable[0]
            if self._find(turn) is None:
                return self.lag.place(turn)
            self._deliverable.popleft()
            self._admit(turn, now)
        return None

    def _admit(self, turn: Turn, now: float) -> None:
        """Let a message be called, after the commit that must come before; unless it has to wait,
        or has used up its attempts."""
        origin = turn.origin = origin_of(turn.queue, turn.known_record)
        turn.attempts = self._book.get(origin)
        if turn.queue is not Queue.DLQ and self._used_up(turn.attempts):
            self._move(turn, Queue.DLQ, turn.attempts)
            return
        at = self._book.pop_due(origin)
        if at is not None and at > now:
            self.lag.lanes[turn.queue].wait(turn.lane, at)
            return
        turn.alone = self._book.suspect(origin)
        permitted = False
        if turn.queue is Queue.MQ:
            partition, offset = self.lag.place(turn)
            stream = self.intake[partition]
            turn.alone |= offset < stream.suspect_below
            permitted = offset < stream.stored_bound
        self._calls.add(turn, permitted=permitted)

    def _find(self, turn: Turn) -> RecordRow | None:
        if turn.record is None:
            turn.record = self._payloads.find(*self.lag.place(turn))
        return turn.record

    def _move(self, turn: Turn, target: Queue, attempts: Attempts | None) -> None:
        """Decide that a message is appended to an older queue."""
        record = turn.known_record
        origin = turn.origin or origin_of(turn.queue, record)
        partition, offset = self.lag.place(turn)
        self._outbox.ready.ack(partition, offset, offset + 1)
        error = FOLLOWS if attempts is None else attempts.error
        move = Move(turn.queue, target, turn.lane, record, origin, attempts, error)
        self._outbox.ready.move(move)
        if attempts is not None:
            self._put_attempts(origin, attempts)
        self.lag.moves(turn, target)

    def _succeeded(self, turn: Turn, origin: Origin) -> None:
        partition, offset = self.lag.place(turn)
        self._outbox.ready.ack(partition, offset, offset + 1)
        if turn.alone or turn.queue is not Queue.MQ or origin in self._book:
            self._outbox.ready.attempts[origin] = NO_ATTEMPTS
            self._book.remove(origin)
        self.lag.lanes[turn.queue].remove_head(turn.lane)

    def _put_attempts(self, origin: Origin, attempts: Attempts) -> None:
        self._book.put(origin, attempts)
        self._outbox.ready.attempts[origin] = attempts

    def _used_up(self, attempts: Attempts) -> bool:
        most = self.options.retry.attempts
        return most is not None and attempts.count >= most

    def _to_read(self) -> MainStream | None:
        """Return the partition of MQ to read ahead; None if there is enough, or no more."""
        if len(self._deliverable) >= self.options.concurrency or not self._may_move:
            return None
        if len(self.lag.lanes[Queue.MQ]) >= self.options.held_max:
            return None
        return self.intake.next_read()
