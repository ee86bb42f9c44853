"""A message being handed to a consumer."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tailrace.duration import parse_duration
from tailrace.errors import Error
from tailrace.group.chunk import Chunk, Fate
from tailrace.message import Message, Mode, Op

T = TypeVar("T")

# By number: several times faster than to call the enums.
_MODES: Final = tuple(Mode)
_OPS: Final = tuple(Op)


class Delivery(Message[T], Generic[T]):
    """A message that a consumer was handed, to be acknowledged. `repr` shows no payload.

    It reads its fields from the columns when they are asked for, so one that is only counted costs
    next to nothing.

    What was said of it first counts: to say it again does nothing, to say the opposite is an
    `Error`. Only what was given back at its last attempt can still be acknowledged, to pass over
    it.
    """

    __slots__ = ("_chunk", "_row", "attempt", "fate")

    def __init__(self, chunk: Chunk, row: int, attempt: int) -> None:
        self._chunk = chunk
        self._row = row
        self._decoded = False
        self.attempt = attempt
        """The number of this attempt: 1, and more each time that it was given back."""
        self.fate: Fate | None = None
        """What was said of it; None while nobody did."""

    @classmethod
    def failed(cls, chunk: Chunk, row: int, attempt: int) -> Delivery[Any]:
        """One that was given back at this attempt, its last."""
        delivery: Delivery[Any] = Delivery(chunk, row, attempt)
        delivery.fate = Fate.FAILED
        return delivery

    if not TYPE_CHECKING:  # what a message stores and a delivery looks up
        topic = property(lambda self: self._chunk.partition.topic)
        storage = property(lambda self: self._chunk.partition.storage)
        partition = property(lambda self: self._chunk.partition.number)
        offset = property(lambda self: self._chunk.offsets[self._row])
        timestamp_ms = property(lambda self: self._chunk.timestamps[self._row])
        mode = property(lambda self: _MODES[self._chunk.modes[self._row]])
        op = property(lambda self: _OPS[self._chunk.ops[self._row]])
        key_bytes = property(lambda self: self._chunk.keys[self._row])
        headers = property(lambda self: self._chunk.headers[self._row])
        data = property(lambda self: self._chunk.values[self._row])
        _decode = property(lambda self: self._chunk.decode)

    @property
    def settled(self) -> bool:
        """Whether it was acknowledged or given back."""
        return self.fate is not None

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it in hand before: this one, or one that ended badly."""
        return self.attempt > 1 or self.offset < self._chunk.redelivered_below

    def ack(self, wait: bool = False) -> None:
        """It is done. Durable within `progress_interval`, or with `wait` when this returns.

        With `wait`, it is `Fenced` when the partition has gone to another consumer meanwhile, who
        will get the message again, and `BackendUnavailable` when the storage does not answer: then
        it is stored as soon as that does.
        """
        if self.fate is Fate.AGAIN:
            raise Error(
                f"{self.id} was given back at attempt {self.attempt}, so it is not acknowledged",
                "acknowledge the delivery of its next attempt",
            )
        self.fate = Fate.DONE
        assert self._chunk.owner is not None
        self._chunk.owner.ack(self.offset, wait)

    def nack(self, delay: timedelta | str = "0s") -> None:
        """It is not done: hand it out again, here, not before the delay is over.

        Meanwhile no other message of its key is handed out. After `attempts` of it the loop gets a
        `DeliveryFailed`.
        """
        delay_s = parse_duration(delay, "delay").total_seconds()
        if self.fate is None:
            assert self._chunk.owner is not None
            self.fate = self._chunk.owner.nack(self.offset, delay_s)
        if self.fate is Fate.DONE:
            raise Error(
                f"{self.id} was acknowledged before, and what was said first counts",
                "give back what is in hand: a loop acknowledges it when it asks for the next",
            )

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return (
            f"<Delivery {self.id} key={self.key!r} {len(self.data)} bytes,"
            f" attempt {self.attempt}{again}>"
        )
