"""The messages of a shard whose turn has come: each goes to a call, or to an older queue.

A message is moved if an older queue holds its key back. Otherwise it is prepared for a call, a few
times the concurrency ahead, unless it has to wait or has used up its attempts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.outcome import CallOutcome, OutcomeKind
from tailrace.delivery.throttle import Throttle
from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import Attempts, Begun, Origin
from tailrace.subscription.shard.calls import Calls
from tailrace.subscription.shard.commit.outbox import Outbox
from tailrace.subscription.shard.intake import Intake, MainStream
from tailrace.subscription.shard.lag import KeyLag
from tailrace.subscription.shard.load.breaker import DeadLetterBreaker
from tailrace.subscription.shard.load.deliverable import Deliverable
from tailrace.subscription.shard.load.throttle import ErrorThrottle
from tailrace.subscription.shard.moved_record import origin_of
from tailrace.subscription.shard.options import Acking, ShardOptions
from tailrace.subscription.shard.payloads import Payloads, RecordRow
from tailrace.subscription.shard.queues import MessageRoute, Queue
from tailrace.subscription.shard.requests.tasks import NextCall
from tailrace.subscription.shard.requests.work import RequestWork
from tailrace.subscription.shard.turn import NO_ATTEMPTS, Turn

POSTPONED_S_MIN: Final = 0.2
"""The least time for which a message waits that could not be called."""


class Turns:
    """The turns of one shard at one owner. For one thread at a time."""

    def __init__(
        self,
        options: ShardOptions,
        *,
        lag: KeyLag,
        intake: Intake,
        book: AttemptBook,
        calls: Calls,
        outbox: Outbox,
        payloads: Payloads,
        requests: RequestWork,
    ) -> None:
        self.options = options
        self._lag = lag
        self._intake = intake
        self._book = book
        self._calls = calls
        self._outbox = outbox
        self._payloads = payloads
        self._requests = requests
        self.breaker = DeadLetterBreaker(options.breaker)
        self.throttle = ErrorThrottle(_throttle_of(options))
        self._waiting: deque[Turn] = deque()
        """Those that are to be moved, and wait for their records or for room."""
        self.unread: Origin | None = None
        """A dead letter whose attempts have to be read before more can be done, or None."""
        self._deliverable = Deliverable(self.throttle)

    def follow(self, options: ShardOptions) -> None:
        """Continue with other options."""
        self.options = options
        self.breaker.follow(options.breaker)
        self.throttle.follow(_throttle_of(options))

    def add(self, batch: FetchedBatch, rows: Sequence[int]) -> None:
        """Add messages that were read from MQ."""
        if self.options.slice_max:
            self._lag.add_slices(batch, rows, self.options.slice_max)
        else:
            self._payloads.add(batch)
            self._lag.add_messages(batch, rows)

    def advance(self, now: float) -> tuple[Partition, int] | None:
        """Move and prepare messages. Returns the place of a record that has to be read before more
        can be done, or None."""
        return self._move_turns(now) or self._carry_out(now) or self._prepare(now)

    @property
    def next_read(self) -> MainStream | None:
        """The partition of MQ to read ahead; None if there is enough, or no more."""
        if len(self._deliverable) >= self.options.calls_ahead or not self.may_move:
            return None
        if len(self._lag.lanes[Queue.MQ]) >= self.options.held_max:
            return None
        slices = self._lag.slices
        if slices.messages >= self.options.calls_ahead:
            return None
        if slices.size_bytes >= self.options.payload_bytes_max:
            return None
        return self._intake.next_read()

    @property
    def due(self) -> float | None:
        """When a message that the throttle holds back may be called; None if there is none."""
        return self.throttle.due if self._calls.prepared < self.options.calls_ahead else None

    @property
    def may_move(self) -> bool:
        """True if another message may be moved: not too many wait for a commit."""
        moves = len(self._waiting) + self._outbox.moves
        return moves < self.options.moves_max and not self._outbox.full

    def move(self, turn: Turn, target: Queue, attempts: Attempts | None) -> None:
        """Decide that a message is appended to an older queue."""
        origin = turn.origin = turn.origin or origin_of(turn.queue, turn.known_record)
        if attempts is not None and target is Queue.DLQ:
            attempts = attempts.park()
        self._outbox.ready.move(turn, self._lag.place(turn), target, attempts)
        if attempts is not None:
            self.put_attempts(origin, attempts)
        self._lag.moves(turn, target)

    def split(self, turns: Sequence[Turn]) -> None:
        """Record that a call with several messages failed: each is called again by itself."""
        self._calls.split([turn for turn in turns if turn.slice is None])
        for turn in turns:
            if turn.slice is not None:
                self._calls.end(turn)
                self.throttle.withdraw(turn.messages)
                self._take_apart(turn, failed=True)

    def count(self, turn: Turn, kind: OutcomeKind, now: float) -> None:
        """Let the breaker and the throttle know how a call has ended."""
        if kind is OutcomeKind.SUCCESS:
            self.breaker.succeeded(turn.messages, now)
        if turn.queue is not Queue.MQ:
            return
        if kind is OutcomeKind.SUCCESS:
            self.throttle.succeeded(turn.messages, now)
        elif kind is OutcomeKind.RETRY:
            self.throttle.failed(now)
        else:
            self.throttle.withdraw(turn.messages)

    def succeeded(self, turn: Turn, now: float) -> None:
        """Have a message acknowledged whose call succeeded, or that did not match."""
        if turn.slice is not None:
            ended = self._lag.end_slice(turn)
            self._outbox.ready.ack(ended.batch.partition, ended.first, ended.after)
            self.advance(now)  # so that one commit has its end and permits the next one
            return
        partition, offset = self._lag.place(turn)
        origin = turn.known_origin
        self._outbox.ready.ack(partition, offset, offset + 1)
        if turn.alone or turn.queue is not Queue.MQ or origin in self._book:
            self._outbox.ready.attempts[origin] = NO_ATTEMPTS
            self._book.remove(origin)
        if turn.queue is Queue.DLQ:
            self._requests.succeeded(turn)
        else:
            self._lag.lanes[turn.queue].remove_head(turn.lane)

    def failed(
        self, turn: Turn, outcome: CallOutcome, *, now: float, now_ms: int, random: float
    ) -> None:
        """Decide what follows a call that failed."""
        self._outbox.urgent = True
        usual = self.options.retry.delay(turn.delays, random)
        delay = usual if outcome.delay is None else outcome.delay
        at, due_ms = now + delay.total_seconds(), now_ms + int(delay.total_seconds() * 1000)
        asked_ms = 0 if outcome.delay is None else due_ms - now_ms
        if turn.queue is Queue.DLQ:
            rejected = outcome.kind is OutcomeKind.REJECT
            again = None if rejected else NextCall(at, due_ms, asked_ms)
            self._requests.failed(turn, turn.attempts.failed(outcome.error, now_ms), again)
            self._keep_trace(turn, outcome)
            return
        origin = turn.known_origin
        attempts = turn.attempts.failed(outcome.error, now_ms, due_ms, asked_ms)
        if outcome.kind is OutcomeKind.REJECT or self.options.used_up(attempts):
            self._die(turn, attempts, now)
            self._keep_trace(turn, outcome)
        elif turn.queue is Queue.MQ:
            self._book.wait(origin, at)
            self.move(turn, Queue.RQ, attempts)
        else:
            self.put_attempts(origin, attempts)
            self._lag.lanes[Queue.RQ].wait(turn.lane, at)

    def _die(self, turn: Turn, attempts: Attempts, now: float) -> None:
        """Let a message become a dead letter that has no attempt left."""
        self.move(turn, Queue.DLQ, attempts)
        self.breaker.died(turn.lane, attempts.error, now)

    def _keep_trace(self, turn: Turn, outcome: CallOutcome) -> None:
        """Have the traceback of a dead letter stored, if its handler has raised an error."""
        if trace := outcome.trace:
            self._outbox.ready.traces[turn.known_origin] = trace

    def postpone(self, turn: Turn, now: float, random: float) -> None:
        """Let a message that was not called after all wait where it is, without an attempt."""
        delay = self.options.retry.delay(turn.delays, random)
        at = now + max(delay.total_seconds(), POSTPONED_S_MIN)
        if turn.alone or turn.queue is not Queue.MQ:
            self._outbox.ready.attempts[turn.known_origin] = turn.unmarked
        if turn.queue is Queue.DLQ:
            self._requests.postpone(turn, at)
        else:
            self._lag.lanes[turn.queue].wait(turn.lane, at)

    def put_attempts(self, origin: Origin, attempts: Attempts) -> None:
        """Have the attempts of a message stored."""
        self._book.put(origin, attempts)
        self._outbox.ready.attempts[origin] = attempts

    def _move_turns(self, now: float) -> tuple[Partition, int] | None:
        """Move the messages that older queues hold back, and pass on those that are delivered.

        Returns the place of a record that has to be read for it, or None.
        """
        while True:
            self._pop_turns(now)
            waiting, self._waiting = self._waiting, deque()
            moved = False
            for turn in waiting:
                route = self._lag.route(turn)
                if route is MessageRoute.DELIVER:
                    if not self._requests.hold(turn):
                        self._deliverable.add((turn,))
                elif self._outbox.full or self._find(turn) is None:
                    self._waiting.append(turn)
                else:
                    self.move(turn, Queue.RQ if route is MessageRoute.TO_RQ else Queue.DLQ, None)
                    moved = True
            if not moved:
                missing = next((turn for turn in self._waiting if turn.record is None), None)
                return None if missing is None or self._outbox.full else self._lag.place(missing)

    def _pop_turns(self, now: float) -> None:
        for queue in (Queue.RQ, Queue.MQ):
            while self.may_move:
                turn = self._lag.pop_turn(queue, now)
                if turn is None:
                    break
                if turn.slice is not None and self._must_be_apart(turn):
                    self._take_apart(turn, failed=False)
                else:
                    self._waiting.append(turn)

    def _must_be_apart(self, turn: Turn) -> bool:
        """True if the messages of a slice cannot be called together."""
        assert turn.slice is not None
        batch, offsets = turn.slice.batch, turn.slice.offsets
        suspects = self._intake[batch.partition].suspects
        special = turn.messages == 1 or self._requests.active
        first = Origin(batch.partition, turn.slice.first, batch.reset)
        special = special or self._book.has_any(first, offsets)
        return special or turn.slice.overlaps(suspects) or self._lag.holds_back(turn)

    def _take_apart(self, turn: Turn, *, failed: bool) -> None:
        """Let each message of a slice have a turn of its own."""
        self._payloads.add(self._lag.take_apart(turn, failed=failed))

    def _carry_out(self, now: float) -> tuple[Partition, int] | None:
        """Carry out requests. Returns the place of a record that has to be read for it."""
        missing = self._requests.discard()
        self._deliverable.add(self._requests.turns(now))
        self._waiting += self._requests.pop_released()
        return missing or (self._move_turns(now) if self._waiting else None)

    def _prepare(self, now: float) -> tuple[Partition, int] | None:
        """Prepare some calls ahead. Returns the place of a record that has to be read for it."""
        self.unread, self.throttle.waits = None, False
        while self._calls.prepared < self.options.calls_ahead:
            turn = self._deliverable.first(now)
            if turn is None:
                break
            if self._find(turn) is None:
                return self._lag.place(turn)
            turn.origin = origin_of(turn.queue, turn.known_record)
            if turn.queue is Queue.DLQ and turn.origin not in self._book:
                self.unread = turn.origin
                return None
            self._deliverable.remove(turn)
            self._admit(turn, now)
        return None

    def _admit(self, turn: Turn, now: float) -> None:
        """Let a message be called, after the commit that must come before; unless it has to wait,
        or has used up its attempts."""
        origin = turn.known_origin
        turn.attempts = self._book.get(origin)
        at = self._book.pop_due(origin)
        if turn.queue is Queue.DLQ:
            if turn.attempts.request == turn.request:  # an earlier owner ended during its call
                self._requests.failed(turn, turn.attempts.begin(Begun.NO))
                return
        elif self.options.used_up(turn.attempts):
            self._die(turn, turn.attempts, now)
            return
        elif at is not None and at > now:
            self._lag.lanes[turn.queue].wait(turn.lane, at)
            return
        if self.options.acking is Acking.BEFORE_CALL and turn.queue is not Queue.DLQ:
            self._calls.add(turn, permitted=False)  # it ends one worker at most
            return
        turn.alone = self._book.suspect(origin)
        permitted = False
        if turn.queue is Queue.MQ:
            self.throttle.begin(turn.messages)
            partition, offset = self._lag.place(turn)
            turn.alone |= offset in self._intake[partition].suspects
            permitted = turn.slice is None and offset in self._intake[partition].permitted
        self._calls.add(turn, permitted=permitted)

    def _find(self, turn: Turn) -> RecordRow | None:
        if turn.record is None:
            turn.record = self._payloads.find(*self._lag.place(turn))
        return turn.record


def _throttle_of(options: ShardOptions) -> Throttle | None:
    """Return the throttle. What is acknowledged before its call never moves to RQ."""
    return None if options.acking is Acking.BEFORE_CALL else options.throttle
