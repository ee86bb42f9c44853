"""Users' handlers in a simulation: what they are given, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailrace.group.chunk import Chunk, Fate
from tailrace.group.delivery import Delivery
from tailrace.group.handlers import check_handlers
from tailrace.group.offer import Offer
from tailrace.log.columns import from_records
from tailrace.message import Message, Partition
from tailrace.testing.arguments import (
    check_callable,
    check_count,
    check_seconds,
    check_span,
)
from tailrace.testing.groups.checks import Checks, Holder
from tailrace.testing.groups.ground import Ground


@dataclass(frozen=True, slots=True)
class Consuming:
    """What a consumer does with its messages.

    `handler` is called when its time, drawn from `takes_s`, has passed; None is content with every
    message. When it raises an error, the message comes again after `retry_s` of the attempt, at
    most `attempts` times in all.
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
            check_handlers(self.handler, None)
        check_span("takes_s", self.takes_s)
        check_count("concurrency", self.concurrency)
        check_count("attempts", self.attempts)
        check_callable("retry_s", self.retry_s, "a function of the attempt that gives seconds")
        check_seconds("revoke_timeout_s", self.revoke_timeout_s)
        check_seconds("progress_interval_s", self.progress_interval_s)


class Handling:
    """Calls the handler of a consumer, as a real session does, and tells the checks."""

    def __init__(
        self,
        consuming: Consuming,
        ground: Ground,
        checks: Checks,
        decode: Callable[[Message[Any]], Any],
    ) -> None:
        self._consuming = consuming
        self._ground = ground
        self._checks = checks
        self._decode = decode

    def call(self, holder: Holder, partition: Partition, offer: Offer) -> float | None:
        """After how long the message is to come again; None when it is done."""
        again_s = self._again_s(holder, partition, offer)
        if again_s is None:
            self._checks.succeeded(holder, str(partition), offer.offset)
        return again_s

    def _again_s(self, holder: Holder, partition: Partition, offer: Offer) -> float | None:
        handler = self._consuming.handler
        if handler is None:
            return None
        verdict = _Verdict()
        try:
            handler(self._delivery(partition, offer, verdict))
        except Exception as error:
            self._checks.failed(holder, str(partition), offer.offset, error)
            return self._consuming.retry_s(offer.attempt)
        if verdict.again_s is not None:
            self._checks.failed(holder, str(partition), offer.offset, None)
        return verdict.again_s

    def _delivery(self, partition: Partition, offer: Offer, verdict: _Verdict) -> Delivery[Any]:
        """The message as a handler gets it in a real session."""
        record = self._ground.record(partition, offer.offset)
        chunk = Chunk(partition, record.offset, record.offset + 1, from_records([record]))
        chunk.redelivered_below = offer.chunk.redelivered_below
        chunk.owner = verdict
        chunk.decode = self._decode
        return Delivery(chunk, 0, offer.attempt)


class _Verdict:
    """What a handler says of a delivery by itself. Implements `tailrace.group.chunk.Settling`."""

    def __init__(self) -> None:
        self.again_s: float | None = None

    def ack(self, offset: int, wait: bool) -> None:
        """It is done, as when the handler returns."""

    def nack(self, offset: int, delay_s: float) -> Fate:
        """It is to come again."""
        self.again_s = delay_s
        return Fate.AGAIN
