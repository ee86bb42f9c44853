"""A message as a consumer receives it, to be acknowledged."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from tailrace.amount import format_amount
from tailrace.delivery.fetched import FetchedBatch, Resolution
from tailrace.duration import parse_duration
from tailrace.errors import Error
from tailrace.log.record import Record
from tailrace.log.redelivered import origin_of
from tailrace.message import Message, Mode, Op

T = TypeVar("T")

# By number: several times faster than to call the enums.
_MODES: Final = tuple(Mode)
_OPS: Final = tuple(Op)


class Outputs(Protocol):
    """Pushes that are stored together with the acknowledgement of a delivery."""

    def push(
        self,
        topic: Any,
        value: object,
        *,
        key: Any = None,
        headers: Any = None,
        timestamp: Any = None,
    ) -> None:
        """Push a message to a topic, given by name or as a `Topic`."""

    def push_many(self, topic: Any, messages: Any) -> None:
        """Push messages to a topic, given as pairs of key and value, in this order."""

    def push_record(self, topic: str, record: Record) -> None:
        """Push a record as it is, which may have reserved headers. For Tailrace itself."""

    def end(self) -> None:
        """Refuse further pushes. For workers."""


class Delivery(Message[T], Generic[T]):
    """A message that was delivered to a consumer, to be acknowledged. `repr` shows no payload.

    The fields are read from columns when they are used, so a delivery that is only counted costs
    next to nothing.

    The first `ack`, `nack` or `reject` counts: to repeat it does nothing, and an `ack` after a
    `nack`, or the reverse, raises `Error`. A delivery that was rejected, or nacked at its last
    attempt, can still be acknowledged, to skip it.

    A delivery is pickled and copied as a `Message` with its value decoded: another process can
    handle it, and only this consumer can acknowledge it.
    """

    __slots__ = ("_batch", "_connection", "_row", "_transaction", "attempt", "resolution")

    def __init__(
        self, batch: FetchedBatch, row: int, attempt: int, transaction: Outputs | None = None
    ) -> None:
        self._batch = batch
        self._row = row
        self._transaction = transaction
        self._decoded = False
        self.attempt = attempt
        """The number of this attempt: 1, and one more after each nack."""
        self.resolution: Resolution | None = None
        """The result of `ack` or `nack`; None before."""

    @classmethod
    def failed(cls, batch: FetchedBatch, row: int, attempt: int) -> Delivery[Any]:
        """Return a delivery that was nacked at this attempt, its last."""
        delivery: Delivery[Any] = Delivery(batch, row, attempt)
        delivery.resolution = Resolution.FAILED
        return delivery

    if not TYPE_CHECKING:  # a message stores these fields; a delivery reads them from columns
        topic = property(lambda self: self._batch.partition.topic)
        storage = property(lambda self: self._batch.partition.storage)
        partition = property(lambda self: self._batch.partition.number)
        offset = property(lambda self: self._batch.offsets[self._row])
        timestamp_ms = property(lambda self: self._batch.timestamps[self._row])
        mode = property(lambda self: _MODES[self._batch.modes[self._row]])
        op = property(lambda self: _OPS[self._batch.ops[self._row]])
        key_bytes = property(lambda self: self._batch.keys[self._row])
        headers = property(lambda self: self._batch.headers[self._row])
        origin = property(lambda self: origin_of(self._batch.stored_headers[self._row]))
        reset = property(lambda self: self._batch.reset)
        data = property(lambda self: self._batch.values[self._row])
        _decode = property(lambda self: self._batch.decode)

    @property
    def tx(self) -> Outputs:
        """The transaction of this delivery: what is pushed by it is stored together with the
        acknowledgement, or not at all. Only with the guarantee ``"exactly-once"``, and without
        `effects`: no commit is one of the hub and of another database."""
        if self._transaction is None:
            raise Error(
                "delivery.tx needs a handler that declares exactly-once, without effects",
                'start it with guarantee="exactly-once" and no effects=; to store effects in a'
                " database and push too, push in a second handler that follows the database",
            )
        return self._transaction

    @property
    def connection(self) -> Any:
        """The database connection of this delivery: what is written by it is stored together with
        the fact that the message was handled, or not at all. Only with `effects`."""
        try:
            return self._connection
        except AttributeError:
            raise Error(
                "delivery.connection needs a handler with effects in a database",
                'start it with guarantee="exactly-once", effects=SqlEffects(...)',
            ) from None

    @property
    def replay(self) -> str | None:
        """The id of the replay that delivers the message, or that has pushed it again to its queue;
        None for all others."""
        return self._batch.replay_of(self._row)

    def bind(self, *, transaction: Outputs | None = None, connection: Any = None) -> None:
        """Give the delivery its transaction or its connection. For workers."""
        if transaction is not None:
            self._transaction = transaction
        if connection is not None:
            self._connection = connection

    @property
    def resolved(self) -> bool:
        """True if it was acknowledged or nacked."""
        return self.resolution is not None

    @property
    def redelivered(self) -> bool:
        """True if the message may have been delivered before: here, or by a consumer that
        crashed."""
        return self.attempt > 1 or self.offset < self._batch.redelivered_below

    def ack(self, wait: bool = False) -> None:
        """Acknowledge the message. The acknowledgement is durable within `progress_interval`, or
        with `wait` when this method returns.

        With `wait`, raises `Fenced` if the partition was granted to another consumer meanwhile,
        which will receive the message again, and `BackendUnavailable` if the storage does not
        answer: then the acknowledgement is stored as soon as the storage answers.
        """
        if self.resolution is Resolution.NACKED:
            raise Error(
                f"{self.id} was nacked at attempt {self.attempt}, so it is not acknowledged",
                "acknowledge the delivery of its next attempt",
            )
        self.resolution = Resolution.ACKED
        assert self._batch.resolver is not None
        self._batch.resolver.ack(self.offset, wait)

    def nack(self, delay: timedelta | str = "0s", *, reason: str = "") -> None:
        """Have the message redelivered, to this consumer, after the delay.

        Until then no other message of its key is delivered. After the last of its `attempts` the
        loop raises `DeliveryFailed`. ``tailrace group show`` prints the reason.
        """
        delay_s = parse_duration(delay, "delay").total_seconds()
        if self.resolution is None:
            assert self._batch.resolver is not None
            self.resolution = self._batch.resolver.nack(self.offset, delay_s, reason)
        if self.resolution is Resolution.ACKED:
            raise Error(
                f"{self.id} was acknowledged before, and the first ack or nack counts",
                "nack a delivery while it is in flight: a loop acknowledges it when it asks for"
                " the next",
            )

    def reject(self, reason: str = "") -> None:
        """Have the message fail at once, as after its last attempt: no further attempt can help.

        The loop raises `DeliveryFailed`, and a run executes its `on_failed`.
        """
        if self.resolution is None:
            assert self._batch.resolver is not None
            self.resolution = self._batch.resolver.reject(self.offset, reason)
        if self.resolution is Resolution.ACKED:
            raise Error(
                f"{self.id} was acknowledged before, and the first call counts",
                "reject a delivery while it is in flight",
            )

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return (
            f"<Delivery {self.id} key={self.key!r} {format_amount(len(self.data), 'byte')},"
            f" attempt {self.attempt}{again}>"
        )


def record_of(delivery: Delivery[Any]) -> Record:
    """Return the record of a delivery, with all its headers."""
    return Record(
        delivery.offset,
        delivery.timestamp_ms,
        delivery.mode,
        delivery.op,
        delivery.key_bytes,
        dict(delivery._batch.stored_headers[delivery._row]) or None,
        delivery.data,
    )
