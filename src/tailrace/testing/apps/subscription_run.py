"""A subscription in a run: its worker, its handler, and the calls so far."""

from __future__ import annotations

import logging
from dataclasses import replace
from random import Random
from typing import Any, Final

from tailrace.app.declaration import DeclaredSubscription
from tailrace.app.worker_options import worker_options
from tailrace.clock import Clock, utc_time
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.outcome import OutcomeKind
from tailrace.delivery.process_gate import ProcessGate
from tailrace.hub.hub import Hub
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.backlog import read_backlog
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.worker.calls import Call, result_of
from tailrace.subscription.worker.effects_calls import effects_call, plain_call
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.testing.apps.delivered import DeliveryOutcome, HandledDelivery, HeldMessage
from tailrace.testing.apps.endpoint import FaultKind, SimulatedEndpoint
from tailrace.testing.apps.handling import Handled, HandlerCalls
from tailrace.testing.apps.held import held_messages, value_of
from tailrace.testing.apps.worker import VirtualWorker

_OUTCOMES: Final = {
    OutcomeKind.SUCCESS: DeliveryOutcome.SUCCEEDED,
    OutcomeKind.RETRY: DeliveryOutcome.FAILED,
    OutcomeKind.REJECT: DeliveryOutcome.REJECTED,
}

_log: Final = logging.getLogger("tailrace.testing")


class SubscriptionRun:
    """One subscription or queue of an app. `last_error` is what its handler raised last."""

    def __init__(
        self,
        hub: Hub,
        declared: DeclaredSubscription,
        *,
        calls: HandlerCalls,
        clock: Clock,
        random: Random,
        gate: ProcessGate,
    ) -> None:
        self.name = declared.name
        self.endpoint = SimulatedEndpoint()
        self.deliveries: list[HandledDelivery] = []
        self.last_error: BaseException | None = None
        self._backend = hub.backend
        self._decode = hub.topic(declared.topic, declared.type).payload.decode_message
        self._declared = declared
        self._calls = calls
        self._clock = clock
        options = WorkerOptions.of(**worker_options(declared))
        wrapped = plain_call if options.effects is None else effects_call
        self._invoke = wrapped(declared.handler)
        self.worker = VirtualWorker(
            hub.backend,
            declared.name,
            options,
            clock=clock,
            random=random,
            decode=self._decode,
            find_topic=hub.topic,
            gate=gate,
        )
        self.worker.start()

    def step(self) -> HandledDelivery | None:
        """Make the next call that is due; None if there is none.

        If a fault kills the worker, the run does it: its process has other workers too.
        """
        call = self.worker.next_call()
        if call is None:
            return None
        seen = self._seen(call.deliveries[0])
        fault = self.endpoint.next_fault(call.deliveries[0].key)
        kind = None if fault is None else fault.kind
        if fault is not None and kind is not FaultKind.KILLS_AFTER_CALL:
            handled = Handled(result_of(call, fault.error), None)
        else:
            handled = self._call(call)
        if kind in (FaultKind.KILLS, FaultKind.KILLS_AFTER_CALL):
            outcome = DeliveryOutcome.WORKER_DIED
        else:
            self.worker.ended(call, handled.outcome)
            outcome = _OUTCOMES[handled.outcome.kind]
        delivery = replace(
            seen,
            outcome=outcome,
            error=handled.outcome.error,
            simulated=kind in (FaultKind.FAILS, FaultKind.KILLS),
        )
        self.deliveries.append(delivery)
        return delivery

    def held(self, queue: Queue) -> list[HeldMessage]:
        """Return the messages in RQ or DLQ, after storing all progress."""
        self.worker.save()
        stored = read_subscription(self._backend, self.name)
        return held_messages(self._backend, stored, queue, self._decode)

    def count_pending(self) -> int:
        """Return the number of messages in MQ and RQ, after storing all progress."""
        self.worker.save()
        backlog = read_backlog(self._backend, read_subscription(self._backend, self.name))
        return backlog.mq + backlog.rq

    def _call(self, call: Call) -> Handled:
        """Call the handler."""
        timeout_s = self._declared.timeout.total_seconds()
        try:
            handled = self._calls.call(self._invoke, call, timeout_s)
            if handled.outcome.kind is OutcomeKind.LOST and handled.error is not None:
                raise handled.error.__cause__ or handled.error
        except BaseException:
            self.worker.kill()  # the outcome is not known
            self.worker.start()
            raise
        if handled.error is not None:
            self._log_failure(call.deliveries[0], handled.outcome.error, handled.error)
        return handled

    def _log_failure(self, delivery: Delivery[Any], text: str, error: BaseException) -> None:
        """Log an error of the handler, with its traceback unless the last one was the same."""
        again = self.last_error is not None and str(self.last_error) == str(error)
        self.last_error = error
        shown = None if again else error
        _log.warning("%s: %r failed: %s", self.name, delivery, text, exc_info=shown)

    def _seen(self, delivery: Delivery[Any]) -> HandledDelivery:
        """Return a delivery as the handler sees it."""
        return HandledDelivery(
            delivery.id,
            delivery.key,
            value_of(delivery),
            dict(delivery.headers),
            delivery.attempt,
            utc_time(self._clock.now_ms()),
            DeliveryOutcome.SUCCEEDED,
        )
