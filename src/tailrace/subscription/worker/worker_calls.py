"""The calls of a worker: which messages its handler is called with, and what follows."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tailrace import telemetry
from tailrace.clock import Clock
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.outcome import CallOutcome, OutcomeKind
from tailrace.reporting.histogram import Histogram
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.worker.calls import Call, joined_calls, outcome_without_call
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.subscription.worker.outputs import DeliveryTransaction, OutputTopics
from tailrace.subscription.worker.shard_io import StoredShard
from tailrace.subscription.worker.turn_delivery import delivery_of, slice_deliveries

_log: Final = logging.getLogger("tailrace.subscription")


class WorkerCalls:
    """Takes messages from the machine of a worker, and tells it the outcomes. Any thread may use
    it.

    `lock` guards the machine. `may_call` is asked with it. `fail` ends the worker with an error,
    and `lose` gives a shard up.
    """

    def __init__(
        self,
        subscription: str,
        machine: WorkerMachine[StoredShard],
        options: WorkerOptions,
        *,
        lock: threading.Condition,
        clock: Clock,
        outputs: OutputTopics | None,
        may_call: Callable[[], bool],
        fail: Callable[[BaseException], None],
        lose: Callable[[StoredShard], None],
    ) -> None:
        self.counts: Counter[OutcomeKind] = Counter()
        """The number of messages by outcome."""
        self.seconds = Histogram(telemetry.WORKER_CALL_SECONDS)
        """How long the calls have taken."""
        self.fail = fail
        self._subscription = subscription
        self._machine = machine
        self._options = options
        self._lock = lock
        self._clock = clock
        self._outputs = outputs
        self._may_call = may_call
        self._lose = lose

    def next_call(self) -> Call | None:
        """Return the messages to call now; None if there are none.

        Messages that do not pass the filter of the worker end here. If the filter fails, that is a
        failed attempt. So do those whose effects are stored already.
        """
        while (found := self._take()) is not None:
            owned, turns = found
            if turns[0].slice is not None:
                call = self._slice_call(owned, turns[0])
                if call is not None:
                    return call
                continue
            passed: list[Call] = []
            for turn in turns:
                call = Call(owned, (turn,), (self._delivery(turn),), self._options.batch)
                outcome = outcome_without_call(call, self._options.filter)
                if outcome is None:
                    passed.append(call)
                else:
                    self._pass_over(call, outcome)
                    self.ended(call, outcome)
            if passed:
                return joined_calls(passed)
        return None

    def _pass_over(self, call: Call, outcome: CallOutcome) -> None:
        """Tell the database of the handler that a message which was filtered has no effects."""
        effects = call.owned.effects
        if effects is not None and outcome.kind is OutcomeKind.FILTERED:
            origin = call.turns[0].known_origin
            effects.pass_over(origin, origin.offset + 1)

    def ended(self, call: Call, outcome: CallOutcome) -> None:
        """Record the outcome of a call. If one with several messages failed, or could not be made,
        each of them is called by itself, except those that are acknowledged already."""
        if outcome.kind is OutcomeKind.LATER and call.turns[0].early:
            outcome = CallOutcome(OutcomeKind.RETRY, outcome.error)
        failed = outcome.kind in (OutcomeKind.RETRY, OutcomeKind.REJECT)
        for transaction in call.transactions if self._outputs is not None else ():
            transaction.end()
        with self._lock:
            if outcome.kind is OutcomeKind.LOST:
                self._lose(call.owned)
            again = [turn for turn in call.turns if not turn.early]
            apart = failed or outcome.kind is OutcomeKind.LATER
            if apart and again and len(call.deliveries) > 1:
                self._machine.split(call.owned, again)
                self._finish(call, [turn for turn in call.turns if turn.early], outcome)
            else:
                self._finish(call, call.turns, outcome)
        if failed:
            self._log_failure(call, outcome)

    def took(self, seconds: float) -> None:
        """Record how long a call has taken that ended, or that was given up."""
        self.seconds.observe(seconds)

    def runs_late(self, calls: Mapping[str, int]) -> None:
        """Record how many calls were given up and still run, by the name of their shard: a pause
        that drains waits for them."""
        with self._lock:
            self._machine.runs_late(calls)

    def _take(self) -> tuple[StoredShard, list[Turn]] | None:
        """Return messages of one shard to call now: one, or several if the handler takes them."""
        options, machine = self._options, self._machine
        with self._lock:
            if not self._may_call():
                machine.forgo()
                return None
            found = machine.next_call()
            if found is None:
                return None
            owned, turn = found
            if not options.batch or turn.alone or turn.single or turn.slice is not None:
                return owned, [turn]
            return owned, [turn, *machine.take_more(owned, turn, (options.batch_size or 1) - 1)]

    def _slice_call(self, owned: StoredShard, turn: Turn) -> Call | None:
        """Return the call of a slice. If effects of its messages are stored, it is taken apart, and
        there is none."""
        effects = owned.effects
        if effects is not None and any(map(effects.stored, turn.origins)):
            with self._lock:
                self._machine.split(owned, [turn])
            return None
        outputs = self._outputs
        transaction = None if outputs is None else DeliveryTransaction(turn, outputs)
        return Call(owned, (turn,), slice_deliveries(turn, transaction), batch=True)

    def _delivery(self, turn: Turn) -> Delivery[Any]:
        delivery = delivery_of(turn)
        if self._outputs is not None:
            delivery.bind(transaction=DeliveryTransaction(turn, self._outputs))
        return delivery

    def _finish(self, call: Call, turns: Iterable[Turn], outcome: CallOutcome) -> None:
        """Record the outcome for messages of a call. With the lock."""
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        for turn in turns:
            self.counts[outcome.kind] += turn.messages
            self._machine.finished(
                call.owned, turn, outcome, now=now, now_ms=now_ms, random=random.random()
            )

    def _log_failure(self, call: Call, outcome: CallOutcome) -> None:
        """Log that a call failed, with the traceback of a first attempt or of a redelivery."""
        delivery = call.deliveries[0]
        raised = None if outcome.decided else outcome.raised
        traced = raised if delivery.attempt == 1 or call.turns[0].queue is Queue.DLQ else None
        more = len(call.deliveries) - 1
        again = "" if call.turns[0].early else ", each called by itself now"
        others = f" and {more:,} more{again}" if more else ""
        what = (self._subscription, delivery, others, outcome.error)
        _log.warning("%s: %r%s failed: %s", *what, exc_info=traced)
