"""The delivery that a handler is called with."""

from __future__ import annotations

from itertools import repeat
from typing import Any, Final

from tailrace.delivery.delivery import Delivery, Outputs, record_of
from tailrace.delivery.fetched import FetchedBatch, Resolution
from tailrace.errors import Error
from tailrace.log.columns import from_records
from tailrace.subscription.shard.moved_record import original_record
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import Turn


def delivery_of(turn: Turn) -> Delivery[Any]:
    """Return the delivery of a message: as it was pushed, wherever it was read now."""
    batch, row = turn.known_record
    origin = turn.known_origin
    if turn.queue is Queue.MQ:
        batch.resolver = _BY_OUTCOME
        delivery: Delivery[Any] = Delivery(batch, row, turn.attempt)
        if not turn.called_before:
            return delivery
        record = record_of(delivery)
    else:
        record = original_record(turn.queue, turn.known_record, origin)
    again = FetchedBatch(origin.partition, origin.offset, origin.offset + 1, from_records([record]))
    again.decode = batch.decode
    again.replay, again.reset = batch.replay, origin.reset
    again.resolver = _BY_OUTCOME
    again.redelivered_below = origin.offset + turn.called_before
    return Delivery(again, 0, turn.attempt)


def slice_deliveries(turn: Turn, transaction: Outputs | None) -> tuple[Delivery[Any], ...]:
    """Return the deliveries of the messages of a slice, which share their transaction."""
    assert turn.slice is not None
    batch, rows = turn.slice
    batch.resolver = _BY_OUTCOME
    return tuple(map(Delivery, repeat(batch), rows, repeat(turn.attempt), repeat(transaction)))


class _ResolvedByOutcome:
    """Refuses `ack`, `nack` and `reject`: the outcome of the handler decides."""

    def ack(self, offset: int, wait: bool) -> None:
        """Refuse."""
        raise _refused("ack", "return from the handler")

    def nack(self, offset: int, delay_s: float, reason: str) -> Resolution:
        """Refuse."""
        raise _refused("nack", "raise RetryLater(delay)")

    def reject(self, offset: int, reason: str) -> Resolution:
        """Refuse."""
        raise _refused("reject", "raise Reject(reason)")


def _refused(method: str, instead: str) -> Error:
    return Error(
        f"delivery.{method}() has no effect in a subscription: the outcome of the handler decides",
        instead,
    )


_BY_OUTCOME: Final = _ResolvedByOutcome()
