"""The messages of a group as one of its consumers gets them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import pyarrow as pa

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import DeliveryFailed, Error, InvalidValue
from tailrace.group.asked import Acks, Asked
from tailrace.group.definition import consumer_name
from tailrace.group.delivery import Delivery
from tailrace.group.ends import unconsumed
from tailrace.group.holding import Holding
from tailrace.group.owned import Owned
from tailrace.group.session import Session
from tailrace.group.taking_part import Runtime
from tailrace.message import Message, Partition

T = TypeVar("T")

_LOOK_S: Final = 0.1
_AGAIN_S: Final = 0.1
_AGAIN_MAX_S: Final = 10.0

_log: Final = logging.getLogger("tailrace.group")


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


class _Batch:
    """A stretch of a chunk that is in hand as a whole."""

    __slots__ = ("_holding", "settled")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self.settled = False

    def ack(self) -> None:
        self.settled = True
        self._holding.done = self._holding.cursor


class Deliveries(Generic[T]):
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
        self.group = group
        self.batch_size = asked.batch_size
        """The most rows of one of `batches`."""
        self._backend = backend
        self._asked = asked
        self._join = join
        self._find_ends = ends
        self._clock = clock
        self._session = Session(
            backend, group, name=asked.session, terms=asked.terms, clock=clock, decoder=decoder
        )
        self._started = self._closed = False
        self._in_hand: Delivery[T] | _Batch | None = None
        self._left = asked.limit
        self._ends: Mapping[Partition, int] | None = None
        self._turning = threading.Lock()
        self._iterations = self._iterator = self._process = 0
        self._thread: threading.Thread | None = None
        self._trouble: BaseException | None = None

    @property
    def is_acking(self) -> bool:
        """Whether what it did not acknowledge comes again: always, in a group."""
        return True

    def __iter__(self) -> Iterator[Delivery[T]]:
        with self._alone(), self._taking_part():
            while (owned := self._turn()) is not None:
                yield from self._hand_out(owned)

    async def __aiter__(self) -> AsyncIterator[Delivery[T]]:
        loop, abandoned = asyncio.get_running_loop(), threading.Event()
        pool = ThreadPoolExecutor(1, "tailrace deliveries")
        async with AsyncExitStack() as part:
            part.enter_context(self._alone())
            if not self._started:
                await part.enter_async_context(self)
            part.callback(pool.shutdown, wait=False)
            part.callback(self._session.rouse)
            part.callback(abandoned.set)
            while (owned := await loop.run_in_executor(pool, self._turn, abandoned)) is not None:
                for delivery in self._hand_out(owned):
                    yield delivery

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The messages in columns, as Arrow batches of at most `batch_size` rows of one partition,
        which the schema's metadata names: ``partition``. Rows with offsets before its
        ``redelivered_below``, if it has that, may have been in a consumer's hand before.
        Acknowledged when the next one is asked for."""
        if self._asked.acks is Acks.MANUAL:
            raise InvalidValue("ack", "manual", "'auto': batches are acknowledged as wholes")
        with self._alone(), self._taking_part():
            while (owned := self._turn()) is not None:
                batch = self._batch(owned)
                if batch is not None:
                    yield batch

    def run(self, handler: Callable[[Delivery[T]], object]) -> None:
        """Call the handler with each delivery until `shutdown`, or until a loop would end.

        A handler that raises gives the message back: it comes again a little later, and the last
        attempt raises `DeliveryFailed` from what the handler raised.
        """
        _check_handler(handler)
        trouble: Exception | None = None
        with self:
            try:
                for delivery in self:
                    try:
                        handler(delivery)
                    except Exception as error:
                        trouble = error
                        _log.warning("%r failed", delivery, exc_info=True)
                        wait_s = min(_AGAIN_S * 2 ** (delivery.attempt - 1), _AGAIN_MAX_S)
                        delivery.nack(timedelta(seconds=wait_s))
            except DeliveryFailed as failed:
                raise failed from trouble

    def start(self, handler: Callable[[Delivery[T]], object]) -> Self:
        """`run` in a thread of its own. What ends it early is logged, and raised by `shutdown`."""
        _check_handler(handler)
        if self._thread is not None:
            raise Error("this consumer is running", "start another")
        self._thread = threading.Thread(
            target=self._run, args=(handler,), name=f"tailrace {self.group}", daemon=True
        )
        self._thread.start()
        return self

    def shutdown(self) -> None:
        """End the iteration once the delivery in hand is done. From any thread, a handler too; in a
        signal handler only without `start`.

        After `start` it returns when the consumer has left the group, and raises what ended it.
        """
        self._session.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                raise trouble

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
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self.shutdown()
        if self._closed or self._process != os.getpid():  # never begun, or before a fork
            return
        self._closed = True
        if error is None:
            self._settle()
        manual = self._asked.acks is Acks.MANUAL
        self._session.leave(release=not manual or error is not None)

    async def __aenter__(self) -> Self:
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError as cancelled:
            # The thread goes on, and nobody else would leave the group.
            await asyncio.wait([entering])
            await self.__aexit__(type(cancelled), cancelled, None)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<Deliveries of {self.group} to {self.id}>"

    def _start(self) -> None:
        if self._closed:
            raise Error("this consumer has left its group", "open another")
        if not self._started:
            if self._asked.to_end:
                self._ends = self._session.share.stops = dict(self._find_ends())
            self._session.start(self._join)
            self._started, self._process = True, os.getpid()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """`Error` for a second thread: it would acknowledge what the first has in hand."""
        thread = threading.get_ident()
        if self._iterations and self._iterator != thread:
            raise Error("another thread iterates this consumer", "open one for each thread")
        self._iterator = thread
        self._iterations += 1
        try:
            yield
        finally:
            self._iterations -= 1

    def _taking_part(self) -> AbstractContextManager[object]:
        """A block for an iteration that is in none."""
        return nullcontext() if self._started else self

    def _run(self, handler: Callable[[Delivery[T]], object]) -> None:
        try:
            self.run(handler)
        except BaseException as error:
            _log.error("a consumer of %s has ended", self.group, exc_info=error)
            self._trouble = error

    def _turn(self, abandoned: threading.Event | None = None) -> Owned | None:
        """Acknowledge the one in hand, and wait for a unit that has more; None at the end."""
        with self._turning:
            self._start()
            self._settle()
            idle_s = self._asked.idle_s
            idle_at = None if idle_s is None else self._clock.monotonic() + idle_s
            while self._left != 0:
                wait_s = None if idle_at is None else max(0.0, idle_at - self._clock.monotonic())
                if self._ends is not None:
                    wait_s = _LOOK_S if wait_s is None else min(wait_s, _LOOK_S)
                    if self._consumed():
                        return None
                owned = self._session.next(wait_s, abandoned)
                if owned is not None or self._session.stopping:
                    return owned
                if abandoned is not None and abandoned.is_set():
                    return None
                if idle_at is not None and self._clock.monotonic() >= idle_at:
                    return None
            return None

    def _consumed(self) -> bool:
        """Whether the group has done all that was there at the start, or can do no more here."""
        assert self._ends is not None
        if not self._session.idle:
            return False
        self._session.commit()
        self._ends = unconsumed(self._backend, consumer_name(self.group), self._ends)
        return self._ends.keys() <= self._session.blocked

    def _settle(self) -> None:
        delivery, self._in_hand = self._in_hand, None
        if delivery is not None and not delivery.settled and self._asked.acks is Acks.AUTO:
            delivery.ack()

    def _hand_out(self, owned: Owned) -> Iterator[Delivery[T]]:
        """What a unit has for this turn. Neither waits nor asks the backend."""
        share, holding = self._session.share, owned.holding
        assert holding is not None
        monotonic, auto = self._clock.monotonic, self._asked.acks is Acks.AUTO
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
            self._in_hand = delivery
            if self._left is not None:
                self._left -= 1
            yield delivery
            if auto and not delivery.settled:
                holding.done = row + 1
            elif self._in_hand is not delivery or not (holding.plain and holding.done > row):
                return  # acknowledged by another iteration, or given back
        if first < end:
            self._in_hand = None
            return
        while self._left != 0 and (offer := self._session.take(owned)) is not None:
            delivery = Delivery(*offer)
            self._in_hand = delivery
            if self._left is not None:
                self._left -= 1
            yield delivery
            self._settle()

    def _batch(self, owned: Owned) -> pa.RecordBatch | None:
        share, holding = self._session.share, owned.holding
        assert holding is not None
        with share.lock:
            chunk, first = holding.chunk, holding.cursor
            end = min(self._bounded(holding), first + self.batch_size)
        if first == end:
            offer = self._session.take(owned)
            if offer is None:
                return None
            chunk, first, end = offer.chunk, offer.row, offer.row + 1
            delivery: Delivery[T] = Delivery(*offer)
            self._in_hand = delivery
            redelivered_below = offer.offset + 1 if delivery.redelivered else 0
        else:
            holding.cursor = end
            if self._clock.monotonic() >= share.limit:
                holding.cursor = first
                return None
            self._in_hand = _Batch(holding)
            redelivered_below = chunk.redelivered_below
        if self._left is not None:
            self._left -= end - first
        assert chunk.records is not None
        metadata = {"partition": owned.name}
        if chunk.offsets[first] < redelivered_below:
            metadata["redelivered_below"] = str(redelivered_below)
        return chunk.records.slice(first, end - first).replace_schema_metadata(metadata)

    def _bounded(self, holding: Holding) -> int:
        end = holding.stretch()
        return end if self._left is None else min(end, holding.cursor + self._left)


def _check_handler(handler: object) -> None:
    if not callable(handler) or inspect.iscoroutinefunction(handler):
        valid = "a function that takes a delivery; with asyncio, async for over this consumer"
        raise InvalidValue("handler", handler, valid)
