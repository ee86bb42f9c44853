"""The messages of a group as one of its consumers gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.duration import parse_duration
from tailrace.errors import Error, InvalidValue
from tailrace.group.asked import Acks, Asked
from tailrace.group.delivery import Delivery
from tailrace.group.hand import Hand
from tailrace.group.handlers import Handler, HandlerThread, OnFailed, call_each, check_handlers
from tailrace.group.iteration import Iteration
from tailrace.group.part import Part
from tailrace.group.session import Session
from tailrace.group.taking_part import Runtime
from tailrace.message import Message, Partition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """What a consumer has, and what it did since it began."""

    partitions: tuple[Partition, ...]
    delivered: int
    acknowledged: int
    nacked: int
    in_hand: int
    held_back: int
    """Read, and waiting for another message of the same key."""
    failed: int
    """Keys of which nothing is handed out any more; see `DeliveryFailed`."""


class Deliveries(Iteration[Delivery[T]], Generic[T]):
    """A consumer of a group: iterate it, with `for` or `async for`, or have it call a handler.

    A delivery is acknowledged when the next one is asked for. Leaving the `with` block acknowledges
    the one in hand, leaving it by an exception does not. With ``ack="manual"`` each delivery waits
    for its `ack` or `nack`, from any thread; meanwhile others of other keys are handed out.

    One thread at a time iterates. It takes part in the group during the `with` block; without one,
    during its first iteration, and what is in hand when that is broken off comes again. In a block,
    after an error from the iteration, such as `DeliveryFailed`, iterating again goes on with the
    rest.
    """

    def __init__(
        self,
        backend: Backend,
        group: str,
        asked: Asked,
        *,
        join: Callable[[Session], Runtime],
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
        ends: Callable[[], Mapping[Partition, int]],
        clock: Clock,
    ) -> None:
        self.id = asked.id
        """Its name, everywhere: the id that was given, and a random part."""
        self.group = group
        self.batch_size = asked.batch_size
        """The most rows of one of `batches`."""
        self._acks = asked.acks
        self._session = Session(
            backend, group, name=asked.id, terms=asked.terms, clock=clock, decoder=decoder
        )
        self._hand: Hand[T] = Hand(self._session, asked, clock)
        part = Part(backend, self._session, self._hand, asked, join=join, ends=ends, clock=clock)
        super().__init__(part, self._hand.deliveries)
        self._thread: HandlerThread | None = None

    @property
    def is_acking(self) -> bool:
        """Whether what it did not acknowledge comes again: always, in a group."""
        return True

    @property
    def running(self) -> bool:
        """Whether what `start` began goes on."""
        return self._thread is not None and self._thread.alive

    def batches(self) -> Iteration[pa.RecordBatch]:
        """The messages in columns, for `for` or `async for`: Arrow batches of at most `batch_size`
        rows of one partition, which the schema's metadata names: ``partition``. Rows with offsets
        before its ``redelivered_below``, if it has that, may have been in a consumer's hand before.
        Acknowledged when the next one is asked for."""
        if self._acks is Acks.MANUAL:
            raise InvalidValue("ack", "manual", "'auto': batches are acknowledged as wholes")
        return Iteration(self._part, self._hand.batches)

    def run(self, handler: Handler[T], *, on_failed: OnFailed | None = None) -> None:
        """Call the handler with each delivery until `shutdown`, or until a loop would end.

        A handler that raises gives the message back: it comes again a little later. After its last
        attempt `on_failed` is called with the `DeliveryFailed`, whose cause is what the handler
        raised. What it acknowledges (``failed.delivery.ack()``) is passed over; what it does not
        stays, and holds up its own key alone. What it raises ends the run. Without `on_failed` the
        `DeliveryFailed` is raised.
        """
        check_handlers(handler, on_failed)
        with self:
            call_each(self, handler, on_failed)

    def start(self, handler: Handler[T], *, on_failed: OnFailed | None = None) -> Self:
        """`run` in a thread of its own. What ends it early is logged, and raised by `wait` or
        `shutdown`, whichever is first."""
        check_handlers(handler, on_failed)
        if self._thread is not None:
            raise Error("this consumer was started before", "start another")
        self._thread = HandlerThread(self.group, lambda: self.run(handler, on_failed=on_failed))
        return self

    def wait(self, timeout: timedelta | str | None = None) -> bool:
        """Wait for the end of what `start` began: True when it has ended and left the group, False
        when the time was over before. Raises what ended it early."""
        if self._thread is None or self._thread.current:
            raise Error("there is nothing to wait for", "valid: after start, outside its handlers")
        timeout_s = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        return self._thread.join(timeout_s)

    def shutdown(self) -> None:
        """End the iteration once the delivery in hand is done. From any thread, a handler too; in a
        signal handler after `start` only while the main thread is in `wait`.

        After `start` it returns when the consumer has left the group, and raises what ended it.
        """
        self._session.stop()
        if self._thread is not None and not self._thread.current:
            self._thread.join()

    def stats(self) -> ConsumerStats:
        """What it has and did, now."""
        with self._session.share.lock:
            held = self._session.holdings
            delivered, acknowledged, nacked = self._session.counts
            return ConsumerStats(
                partitions=tuple(sorted(held)),
                delivered=delivered,
                acknowledged=acknowledged,
                nacked=nacked,
                in_hand=sum(holding.in_hand for holding in held.values()),
                held_back=sum(holding.held_back for holding in held.values()),
                failed=sum(holding.failed for holding in held.values()),
            )

    def __enter__(self) -> Self:
        self._part.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._thread is not None and not self._thread.current:
            self.shutdown()
        self._part.end(error)

    async def __aenter__(self) -> Self:
        await self._part.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<Deliveries of {self.group} to {self.id}>"
