"""What a consumer has in its hand, and how the next comes there while a unit has its turn.

This is the hot loop of groups: between two deliveries it neither waits nor asks the backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import pyarrow as pa

from tailrace.clock import Clock
from tailrace.group.asked import Acks, Asked
from tailrace.group.delivery import Delivery
from tailrace.group.holding import Holding
from tailrace.group.owned import Owned
from tailrace.group.session import Session

T = TypeVar("T")


class _Batch:
    """A stretch of a chunk that is in hand as a whole. Nobody says anything of it but the hand."""

    __slots__ = ("_holding",)
    fate: Final = None

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def ack(self) -> None:
        self._holding.done = self._holding.cursor


class Hand(Generic[T]):
    """The hand of one consumer. For one thread at a time."""

    def __init__(self, session: Session, asked: Asked, clock: Clock) -> None:
        self.left = asked.limit
        """How many messages it may still take; None for any number."""
        self._session = session
        self._auto = asked.acks is Acks.AUTO
        self._batch_size = asked.batch_size
        self._clock = clock
        self._held: Delivery[T] | _Batch | None = None

    def settle(self) -> None:
        """Acknowledge what is held, if nobody has said anything of it and nobody else is to."""
        held, self._held = self._held, None
        if held is not None and held.fate is None and self._auto:
            held.ack()

    def deliveries(self, owned: Owned) -> Iterator[Delivery[T]]:
        """What a unit has for this turn, each acknowledged as the next is asked for."""
        share, holding = self._session.share, owned.holding
        assert holding is not None
        monotonic, auto = self._clock.monotonic, self._auto
        with share.lock:
            chunk, first, end = holding.chunk, holding.cursor, self._bounded(holding)
        for row in range(first, end):
            # In hand first, then the look at the limit: whoever lowers that looks at what is in
            # hand afterwards, so no unit is let go of with one that both believe is the other's.
            holding.cursor = row + 1
            if monotonic() >= share.limit:
                holding.cursor = row
                return
            delivery: Delivery[T] = Delivery(chunk, row, 1)
            self._held = delivery
            if self.left is not None:
                self.left -= 1
            yield delivery
            if auto and delivery.fate is None:
                holding.done = row + 1
            # Whoever gives it back from another thread has the lanes first, and moves `done` then.
            elif self._held is not delivery or not (holding.done > row and holding.plain):
                return  # acknowledged by another iteration, or given back
        if first < end:
            self._held = None
            return
        while self.left != 0 and (offer := self._session.take(owned)) is not None:
            delivery = Delivery(*offer)
            self._held = delivery
            if self.left is not None:
                self.left -= 1
            yield delivery
            self.settle()

    def batches(self, owned: Owned) -> Iterator[pa.RecordBatch]:
        """The same in columns: one batch at most in a turn."""
        share, holding = self._session.share, owned.holding
        assert holding is not None
        with share.lock:
            chunk, first = holding.chunk, holding.cursor
            end = min(self._bounded(holding), first + self._batch_size)
        if first == end:
            offer = self._session.take(owned)
            if offer is None:
                return
            chunk, first, end = offer.chunk, offer.row, offer.row + 1
            delivery: Delivery[T] = Delivery(*offer)
            self._held = delivery
            redelivered_below = offer.offset + 1 if delivery.redelivered else 0
        else:
            holding.cursor = end
            if self._clock.monotonic() >= share.limit:
                holding.cursor = first
                return
            self._held = _Batch(holding)
            redelivered_below = chunk.redelivered_below
        if self.left is not None:
            self.left -= end - first
        assert chunk.records is not None
        metadata = {"partition": owned.name}
        if chunk.offsets[first] < redelivered_below:
            metadata["redelivered_below"] = str(redelivered_below)
        yield chunk.records.slice(first, end - first).replace_schema_metadata(metadata)

    def _bounded(self, holding: Holding) -> int:
        end = holding.stretch()
        return end if self.left is None else min(end, holding.cursor + self.left)
