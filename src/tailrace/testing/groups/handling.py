"""The calls of users' handlers in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tailrace.delivery.delivery import Delivery
from tailrace.delivery.fetched import FetchedBatch, FetchedRow, Resolution, Resolver
from tailrace.delivery.outcome import CallOutcome, OutcomeKind, outcome_of
from tailrace.log.columns import from_records
from tailrace.message import Message, Partition
from tailrace.testing.arguments import (
    check_callable,
    check_count,
    check_handler,
    check_seconds,
    check_span,
)
from tailrace.testing.groups.checks import CheckedSession, Checks
from tailrace.testing.groups.storage import SimulatedStorage


@dataclass(frozen=True, slots=True)
class ConsumingOptions:
    """The options of a simulated consumer.

    `handler` is called after its time, random within `takes_s`, has passed; without a handler every
    message is acknowledged. If it raises an error, the message is redelivered after `retry_s` of
    the attempt, up to `attempts` attempts.
    """

    group: str
    handler: Callable[[Delivery[Any]], object] | None
    takes_s: tuple[float, float]
    concurrency: int
    attempts: int
    retry_s: Callable[[int], float]
    revoke_timeout_s: float
    progress_interval_s: float

    def __post_init__(self) -> None:
        if self.handler is not None:
            check_handler(self.handler)
        check_span("takes_s", self.takes_s)
        check_count("concurrency", self.concurrency)
        check_count("attempts", self.attempts)
        check_callable("retry_s", self.retry_s, "a function of the attempt that gives seconds")
        check_seconds("revoke_timeout_s", self.revoke_timeout_s)
        check_seconds("progress_interval_s", self.progress_interval_s)


class HandlerCaller:
    """Calls the handler of a consumer, as `Consumer.run` does, and reports to the checks."""

    def __init__(
        self,
        consuming: ConsumingOptions,
        storage: SimulatedStorage,
        checks: Checks,
        decode: Callable[[Message[Any]], Any],
    ) -> None:
        self._consuming = consuming
        self._storage = storage
        self._checks = checks
        self._decode = decode

    def call(
        self, holder: CheckedSession, partition: Partition, row: FetchedRow, to: Resolver
    ) -> None:
        """Call the handler with a message, and resolve the delivery as the handler did."""
        unit, offset, handler = str(partition), row.offset, self._consuming.handler
        if handler is None:
            self._checks.succeeded(holder, unit, offset)
            to.ack(offset, False)
            return
        delivery = self._delivery(partition, row, to)
        error: Exception | None = None
        try:
            handler(delivery)
        except Exception as raised:
            error = raised
        if delivery.resolution is Resolution.ACKED or (error is None and not delivery.resolved):
            self._checks.succeeded(holder, unit, offset)
        else:
            self._checks.failed(holder, unit, offset, error)
        if not delivery.resolved:
            self._resolve(delivery, outcome_of(error))

    def _resolve(self, delivery: Delivery[Any], outcome: CallOutcome) -> None:
        match outcome.kind:
            case OutcomeKind.SUCCESS:
                delivery.ack()
            case OutcomeKind.REJECT:
                delivery.reject(outcome.error)
            case OutcomeKind.RETRY:
                delay = outcome.delay
                if delay is None:
                    delay = timedelta(seconds=self._consuming.retry_s(delivery.attempt))
                delivery.nack(delay, reason=outcome.error)

    def _delivery(self, partition: Partition, row: FetchedRow, to: Resolver) -> Delivery[Any]:
        """Return the message as a handler receives it in a real session."""
        record = self._storage.record(partition, row.offset)
        batch = FetchedBatch(partition, record.offset, record.offset + 1, from_records([record]))
        batch.redelivered_below = row.batch.redelivered_below
        batch.resolver = to
        batch.decode = self._decode
        return Delivery(batch, 0, row.attempt)
