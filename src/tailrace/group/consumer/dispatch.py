"""The delivery of one unit's messages to a consumer's loop, while the unit has its turn.

This is the hot loop of groups: between two deliveries it neither waits nor calls the backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import pyarrow as pa

from tailrace.clock import Clock
from tailrace.delivery.cursor import Cursor
from tailrace.delivery.delivery import Delivery
from tailrace.group.consumer.options import AckMode, ConsumerOptions
from tailrace.group.session.session import Session
from tailrace.group.session.session_unit import SessionUnit

T = TypeVar("T")


class _WholeBatch:
    """Rows that were delivered as one Arrow batch. `Dispatch` alone acknowledges them."""

    __slots__ = ("_cursor",)
    resolution: Final = None

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def ack(self) -> None:
        self._cursor.acked = self._cursor.delivered


class Dispatch(Generic[T]):
    """The current delivery of one consumer, and the way to the next. For one thread at a time."""

    def __init__(self, session: Session, options: ConsumerOptions, clock: Clock) -> None:
        self.left = options.limit
        """The number of messages that may still be delivered; None for no limit."""
        self._session = session
        self._auto = options.ack_mode is AckMode.AUTO
        self._batch_size = options.batch_size
        self._clock = clock
        self._current: Delivery[T] | _WholeBatch | None = None

    def resolve(self) -> None:
        """Acknowledge the current delivery, in automatic mode, if it is unresolved."""
        current, self._current = self._current, None
        if current is not None and current.resolution is None and self._auto:
            current.ack()

    def deliveries(self, owned: SessionUnit) -> Iterator[Delivery[T]]:
        """Yield the deliveries of a unit's turn. Each is acknowledged when the next is asked for,
        in automatic mode."""
        machine, cursor = self._session.machine, owned.cursor
        assert cursor is not None
        monotonic, auto, lock = self._clock.monotonic, self._auto, self._session.state.lock
        while self.left != 0:
            with lock:
                batch, first, end = cursor.batch, cursor.delivered, self._bounded(cursor)
                changes = cursor.changes
            if first == end:
                if (taken := self._session.take(owned)) is None:
                    return
                again: Delivery[T] = Delivery(*taken)
                self._current = again
                if self.left is not None:
                    self.left -= 1
                yield again
                self.resolve()
            for row in range(first, end):
                # In flight first, then the check of the limit: a thread that lowers the limit reads
                # `in_flight` afterwards. So no unit is released with a delivery that each of the
                # two threads attributes to the other.
                cursor.delivered = row + 1
                if monotonic() >= machine.limit:
                    cursor.delivered = row
                    return
                delivery: Delivery[T] = Delivery(batch, row, 1)
                self._current = delivery
                if self.left is not None:
                    self.left -= 1
                yield delivery
                if auto and delivery.resolution is None:
                    cursor.acked = row + 1
                # A thread that nacks increases `changes` first, and moves `acked` afterwards.
                elif self._current is not delivery or not (
                    cursor.acked > row and cursor.changes == changes
                ):
                    return  # acknowledged by another iteration, or nacked
            self._current = None

    def batches(self, owned: SessionUnit) -> Iterator[pa.RecordBatch]:
        """Yield at most one Arrow batch of a unit's turn."""
        machine, cursor = self._session.machine, owned.cursor
        assert cursor is not None
        with self._session.state.lock:
            batch, first = cursor.batch, cursor.delivered
            end = min(self._bounded(cursor), first + self._batch_size)
        if first == end:
            taken = self._session.take(owned)
            if taken is None:
                return
            batch, first, end = taken.batch, taken.row, taken.row + 1
            self._current = Delivery(*taken)
            redelivered_below = taken.offset + 1 if taken.redelivered else 0
        else:
            cursor.delivered = end
            if self._clock.monotonic() >= machine.limit:
                cursor.delivered = first
                return
            self._current = _WholeBatch(cursor)
            redelivered_below = batch.redelivered_below
        if self.left is not None:
            self.left -= end - first
        metadata = {"partition": owned.name}
        if batch.offsets[first] < redelivered_below:
            metadata["redelivered_below"] = str(redelivered_below)
        yield batch.shown_records.slice(first, end - first).replace_schema_metadata(metadata)

    def _bounded(self, cursor: Cursor) -> int:
        end = cursor.plain_until()
        return end if self.left is None else min(end, cursor.delivered + self.left)
