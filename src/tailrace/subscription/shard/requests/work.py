"""The requests of a shard as its owner carries them out.

A letter that is redelivered becomes a turn, like the message of any other queue: its attempt is
recorded before the call, and it is acknowledged with its outcome. Under ``block`` its key lags in
DLQ meanwhile, so nothing else of the key is called. Under ``continue`` the other messages of the
key wait until the redelivery has ended.

Every effect is put into the next commit together with the state of its request, and the last one
together with the end of the request. See `tailrace.subscription.shard.requests.state`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tailrace.delivery.key_lanes import LaneName, LaneState
from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import Attempts, left_s
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.commit.outbox import Outbox
from tailrace.subscription.shard.lag import KeyLag
from tailrace.subscription.shard.ledgers import Ledgers
from tailrace.subscription.shard.moved_record import origin_of
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.payloads import Payloads
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.requests.progress import RequestProgress
from tailrace.subscription.shard.requests.request import LetterRequest, RequestAction
from tailrace.subscription.shard.requests.state import (
    EndedRequest,
    FailedTarget,
    RequestState,
    TargetOutcome,
)
from tailrace.subscription.shard.requests.tasks import NextCall, RequestTask, RequestTasks
from tailrace.subscription.shard.turn import NO_ATTEMPTS, Turn

FORGOTTEN_MAX: Final = 1_000
"""The number of requests that have ended and are still known, so that a late reader of the store
does not add them again."""


class RequestWork:
    """The requests of one shard at one owner. For one thread at a time."""

    def __init__(
        self,
        options: ShardOptions,
        lag: KeyLag,
        ledgers: Ledgers,
        book: AttemptBook,
        counts: ShardCounts,
        outbox: Outbox,
        payloads: Payloads,
    ) -> None:
        self.to_remove: deque[str] = deque()
        """The requests whose end is stored: their store entries are to be removed."""
        self._released: list[Turn] = []
        self._options = options
        self._exclusive = options.policy is OnDeadLetter.CONTINUE
        self._lag = lag
        self._ledgers = ledgers
        self._book = book
        self._counts = counts
        self._outbox = outbox
        self._payloads = payloads
        self._tasks = RequestTasks(max(1, options.concurrency // 2))
        self._requests: dict[str, RequestProgress] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._resolved: set[int] = set()
        """The letters whose acknowledgement is decided and not stored yet."""

    # Requests.

    def load(
        self,
        requests: Sequence[LetterRequest],
        states: Mapping[str, RequestState],
        now: float,
        now_ms: int,
    ) -> None:
        """Continue the requests that a new owner found, and forget those that were removed."""
        longest_s = self._options.retry.max.total_seconds()
        for request in requests:
            state = states.get(request.id)
            if state is not None and state.ended:
                self._known_as_ended(request.id)
                self.to_remove.append(request.id)
            else:
                waits = [
                    (each, left_s(each.due_ms, each.delay_ms, now_ms, longest_s))
                    for each in (state.failed if state else ())
                ]
                again = {each.target: now + wait_s for each, wait_s in waits if wait_s}
                self.add(request, state, again)
        for id in states.keys() - {request.id for request in requests}:
            self._outbox.ready.requests[id] = None

    def add(
        self,
        request: LetterRequest,
        state: RequestState | None = None,
        again: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        """Begin or continue a request. One that is known already changes nothing.

        `again` has the times of the next calls of its targets that wait for one.
        """
        if request.id in self._requests or request.id in self._ended:
            return
        progress = self._requests[request.id] = RequestProgress(request, state)
        for index in progress.open:
            task = self._task(request, index)
            if task is None:
                progress.end(index, TargetOutcome.GONE)
            else:
                task.again_at = again.get(index)
                if index in progress.failed:
                    task.failures = progress.failed[index].failures
                self._tasks.add(task)
        self._changed(progress)

    def removed(self, id: str) -> None:
        """Record that the store entry of a request was removed. Its state is removed next."""
        if id in self.to_remove:
            self.to_remove.remove(id)
            self._outbox.ready.requests[id] = None

    def stored(self, ended: Sequence[EndedRequest]) -> None:
        """Record that a commit is stored, and the requests that ended with it."""
        self.to_remove.extend(each.request.id for each in ended)
        self._resolved = {id for id in self._resolved if not self._stored_ack(id)}

    def _task(self, request: LetterRequest, index: int) -> RequestTask | None:
        """Return the task of a target; None if the shard has no such partition."""
        target, lag = request.targets[index], self._lag
        try:
            letters = [lag.letter_id(place) for place in target.letters]
            until = None if target.until is None else lag.letter_id(target.until)
        except KeyError:
            return None
        lane: LaneName = target.key or letters[0]
        return RequestTask(request, index, lane, deque(letters) if letters else None, until)

    def _changed(self, progress: RequestProgress) -> None:
        """Have the next commit store the state of a request; and its end, if it has ended."""
        ready, state, id = self._outbox.ready, progress.state, progress.request.id
        ready.requests[id] = state
        if state.ended:
            ready.ended.append(EndedRequest(progress.request, state))
            self._outbox.urgent = True
            del self._requests[id]
            self._known_as_ended(id)

    def _known_as_ended(self, id: str) -> None:
        self._ended[id] = None
        if len(self._ended) > FORGOTTEN_MAX:
            self._ended.popitem(last=False)

    # Redelivery.

    @property
    def active(self) -> bool:
        """True if letters are being redelivered or discarded."""
        return bool(self._requests)

    @property
    def due(self) -> float | None:
        """The time of the next call of a letter whose redelivery failed; None if there is none."""
        return self._tasks.due

    def turns(self, now: float) -> list[Turn]:
        """Return the letters to deliver now."""
        found = []
        for task in self._tasks.redeliveries(now):
            if task.turn is not None or self._busy(task):
                continue
            id = self._next_letter(task)
            if id is not None:
                turn = Turn(Queue.DLQ, task.lane, id, request=task.request.id)
                turn.failures = task.failures
                task.turn = turn
                found.append(turn)
        return found

    def hold(self, turn: Turn) -> bool:
        """Let a message of MQ or RQ wait if its key is being redelivered. False if it is not."""
        task = None if isinstance(turn.lane, int) else self._tasks.redelivery(turn.lane)
        if task is None:
            return False
        task.held.append(turn)
        return True

    def pop_released(self) -> list[Turn]:
        """Return, once, the messages that wait no more."""
        released, self._released = self._released, []
        return released

    def succeeded(self, turn: Turn) -> None:
        """Record that a letter was delivered, and is acknowledged by the next commit."""
        self._outbox.ready.traces[turn.known_origin] = None
        task = self._landed(turn)
        task.failures = 0
        self._resolve(task, turn.id)
        self._next_letter(task)

    def failed(self, turn: Turn, attempts: Attempts, again: NextCall | None = None) -> None:
        """Record that the delivery of a letter failed. The letter stays, and so do those behind
        it. It is called again, if the request has attempts left."""
        origin = turn.known_origin
        self._outbox.ready.attempts[origin] = attempts = attempts.park()
        self._book.put(origin, attempts)
        self._outbox.urgent = True
        task = self._landed(turn)
        task.failures += 1
        if again is None or task.failures >= task.request.attempts:
            self._end(task, TargetOutcome.FAILED)
            return
        self._tasks.delay(task, again.at)
        progress = self._requests[task.request.id]
        progress.fail(FailedTarget(task.index, task.failures, again.due_ms, again.delay_ms))
        self._changed(progress)

    def postpone(self, turn: Turn, again_at: float) -> None:
        """Record that a letter was not called after all: it is called at a time."""
        self._tasks.delay(self._landed(turn), again_at)

    def _landed(self, turn: Turn) -> RequestTask:
        task = self._tasks.redelivery(turn.lane)
        assert task is not None
        assert task.turn is turn, "a lane has one letter on its way"
        task.turn = None
        return task

    def _busy(self, task: RequestTask) -> bool:
        """True if another message of the key is on its way to a call."""
        if not self._exclusive or isinstance(task.lane, int):
            return False
        if self._lag.slices.in_flight:
            return True
        held = {turn.queue for turn in task.held}
        return any(
            self._lag.lanes[queue].lane_state(task.lane) is LaneState.IN_FLIGHT
            for queue in (Queue.RQ, Queue.MQ)
            if queue not in held
        )

    # Discards.

    def discard(self) -> tuple[Partition, int] | None:
        """Discard letters, as many as one commit may. Returns the place of a record that has to be
        read for it, or None."""
        ready = self._outbox.ready
        while (task := self._tasks.discard) is not None:
            if self._outbox.discarded >= self._options.moves_max:
                return None
            id = self._next_letter(task)
            if id is None:
                if self._tasks.discard is task:
                    return None
                continue
            partition, offset = self._lag.letter_place(id)
            record = self._payloads.find(partition, offset)
            if record is None:
                return partition, offset
            origin = origin_of(Queue.DLQ, record)
            ready.ack(partition, offset, offset + 1)
            ready.discarded += 1
            self._counts.discarded += 1
            self._outbox.urgent = True
            ready.attempts[origin] = NO_ATTEMPTS
            ready.traces[origin] = None
            self._book.remove(origin)
            self._resolve(task, id)
            self._next_letter(task)
        return None

    # Letters.

    def _next_letter(self, task: RequestTask) -> int | None:
        """Return the letter of a task that is next; None if it waits for one, or if the task has
        ended with this call."""
        if task.letters is not None:
            return self._next_named(task, task.letters)
        lanes = self._lag.lanes[Queue.DLQ]
        state = lanes.lane_state(task.lane)
        if state is LaneState.EXPECTED and (task.until is None or not self._outbox.idle):
            return None  # what is being appended may be before `until`
        if state is not None and state is not LaneState.EXPECTED:
            id = lanes.head(task.lane)
            if task.until is None or id <= task.until:
                return id
        self._end(task, TargetOutcome.DONE)
        return None

    def _next_named(self, task: RequestTask, letters: deque[int]) -> int | None:
        while letters and not self._waits(task, letters[0]):
            if not (self._acknowledged(letters[0]) or self._outbox.idle):
                return None  # it may be appended by the commit that is under way
            letters.popleft()
        if not letters:
            self._end(task, TargetOutcome.DONE if task.resolved else TargetOutcome.GONE)
            return None
        in_order = task.request.action is RequestAction.REDELIVER and not task.request.break_order
        if in_order and not self._lag.is_first_letter(task.lane, letters[0]):
            self._end(task, TargetOutcome.REFUSED)
            return None
        return letters[0]

    def _waits(self, task: RequestTask, id: int) -> bool:
        """True if a letter is in DLQ."""
        return not self._acknowledged(id) and self._lag.knows_letter(task.lane, id)

    def _resolve(self, task: RequestTask, id: int) -> None:
        self._resolved.add(id)
        self._lag.remove_letter(task.lane, id)
        task.resolved += 1
        progress = self._requests[task.request.id]
        progress.resolved(task.index)
        self._changed(progress)

    def _end(self, task: RequestTask, outcome: TargetOutcome) -> None:
        self._tasks.end(task)
        self._released += task.held
        progress = self._requests[task.request.id]
        progress.end(task.index, outcome)
        self._changed(progress)

    def _acknowledged(self, id: int) -> bool:
        """True if a letter is acknowledged, or will be by the next commit."""
        return id in self._resolved or self._stored_ack(id)

    def _stored_ack(self, id: int) -> bool:
        partition, offset = self._lag.letter_place(id)
        return self._ledgers.stored[partition].acked(offset)
