"""A consumer of a group, as users hold it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from tailrace.backend.contract import Backend
from tailrace.backend.pickling import Unpicklable
from tailrace.clock import Clock
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.retry import Retry
from tailrace.duration import parse_duration
from tailrace.errors import Error, InvalidValue
from tailrace.group.consumer.async_handlers import begin_async, call_each_async
from tailrace.group.consumer.dispatch import Dispatch
from tailrace.group.consumer.failure_handling import (
    FailureHandling,
    HandlerOptions,
    OnFailed,
)
from tailrace.group.consumer.handlers import Handler, HandlerThread, call_each
from tailrace.group.consumer.options import AckMode, ConsumerOptions
from tailrace.group.consumer.poll import Iteration, Poller
from tailrace.group.runtime.contract import SessionRuntime
from tailrace.group.session.session import Session
from tailrace.message import Message, Partition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """The partitions that a consumer owns, and the number of its messages by state.

    `delivered`, `acknowledged` and `nacked` count since the consumer was created, including
    partitions that it owned before. The other numbers are those of now.
    """

    partitions: tuple[Partition, ...]
    delivered: int
    acknowledged: int
    nacked: int
    in_flight: int
    """Delivered, and neither acknowledged nor nacked."""
    held_back: int
    """Read, queued by key and not in flight: behind another message of the key, waiting for the
    next attempt, or failed."""
    failed: int
    """Failed their last attempt and not acknowledged: each blocks its key; see `DeliveryFailed`."""


class Consumer(Unpicklable, Iteration[Delivery[T]], Generic[T]):
    """A consumer of a group. Iterate it with `for` or `async for`, or let it call a handler.

    A delivery is acknowledged when the next one is asked for. To leave the `with` block
    acknowledges the delivery in flight, unless an exception ends the block. With ``ack="manual"``
    each delivery waits for its `ack` or `nack`, from any thread; meanwhile messages of other keys
    are delivered.

    One thread at a time iterates. The consumer is a member of the group during its `with` block.
    Without a block, it is a member during its first iteration, and the message in flight when that
    is broken off is redelivered. In a block, after an error from the iteration, such as
    `DeliveryFailed`, another iteration continues with the rest.
    """

    def __init__(
        self,
        backend: Backend,
        group: str,
        options: ConsumerOptions,
        *,
        join: Callable[[Session], SessionRuntime],
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
        ends: Callable[[], Mapping[Partition, int]],
        clock: Clock,
    ) -> None:
        self.id = options.id
        """The unique name of the consumer: the id that was given, and a random part."""
        self.group = group
        self.batch_size = options.batch_size
        """The maximum number of rows of one of the `batches`."""
        self._options = options
        self._session = Session(
            backend, group, name=options.id, options=options.session, clock=clock, decoder=decoder
        )
        self._dispatch: Dispatch[T] = Dispatch(self._session, options, clock)
        poller = Poller(
            backend, self._session, self._dispatch, options, join=join, ends=ends, clock=clock
        )
        super().__init__(poller, self._dispatch.deliveries)
        self._thread: HandlerThread | None = None

    @property
    def is_acking(self) -> bool:
        """True if unacknowledged messages are redelivered: always, in a group."""
        return True

    @property
    def running(self) -> bool:
        """True while the thread of `start` runs."""
        return self._thread is not None and self._thread.alive

    def batches(self) -> Iteration[pa.RecordBatch]:
        """Return the messages in columns, for `for` or `async for`.

        An Arrow batch has at most `batch_size` rows of one partition, which the schema's metadata
        names: ``partition``. If the metadata has ``redelivered_below``, rows with lower offsets may
        have been delivered before. A batch is acknowledged when the next one is asked for.
        """
        if self._options.ack_mode is AckMode.MANUAL:
            raise InvalidValue("ack", "manual", "'auto': each batch is acknowledged as a whole")
        return Iteration(self._poller, self._dispatch.batches)

    def run(
        self,
        handler: Handler[T],
        *,
        retry: Retry | None = None,
        on_failed: OnFailed | None = None,
    ) -> None:
        """Call the handler with each delivery until `shutdown`, or until a loop would end.

        The handler is a function or a coroutine function. If it raises, the message is delivered
        again after a delay, by default without end; meanwhile only its key waits. `retry` sets the
        delays, and the number of attempts if it is to end; `RetryLater` sets one delay. After the
        last attempt, or after `Reject`, `on_failed` decides: ``"stop"`` raises `DeliveryFailed`,
        whose cause is the handler's error; ``"skip"`` logs the message and acknowledges it;
        ``"dead-letter"`` stores it as a dead letter and acknowledges it, in one commit. A function
        is called with the `DeliveryFailed`: if it calls ``failed.delivery.ack()``, the message is
        skipped; otherwise the message stays and blocks its key.

        With `on_failed` and without `retry`, a message has `attempts` attempts, as in a loop. An
        outage of the hub is waited out and logged. Other errors end the run.
        """
        options = self._handler_options(handler, retry, on_failed)
        if inspect.iscoroutinefunction(handler) and _loop_runs():
            raise Error(
                "an event loop runs in this thread, so this run cannot await the handler",
                "await the run of a consumer of tailrace.aio, or use start",
            )
        handling = FailureHandling(self._session, options)
        if self._join(handling):
            with self:
                call_each(self, handler, handling)

    def start(
        self,
        handler: Handler[T],
        *,
        retry: Retry | None = None,
        on_failed: OnFailed | None = None,
    ) -> Self:
        """Call `run` in a thread of its own.

        An error that ends the thread is logged, and raised once, by `wait` or `shutdown`.
        """
        self._handler_options(handler, retry, on_failed)
        if self._thread is not None:
            raise Error("this consumer was started before", "start another")
        self._thread = HandlerThread(
            self.group, lambda: self.run(handler, retry=retry, on_failed=on_failed)
        )
        return self

    async def run_async(
        self, handler: Handler[T], *, retry: Retry | None, on_failed: OnFailed | None
    ) -> None:
        """Do what `run` does, on the event loop of the caller. See `tailrace.aio.Consumer.run`."""
        handling = FailureHandling(self._session, self._handler_options(handler, retry, on_failed))
        if self._poller.begun or await begin_async(self._poller.__aenter__, handling):
            async with self:
                await call_each_async(self, handler, handling)

    def _handler_options(
        self, handler: object, retry: Retry | None, on_failed: OnFailed | None
    ) -> HandlerOptions:
        attempts, default = self._options.attempts, self._options.session.attempts
        return HandlerOptions.of(
            handler, retry, on_failed, attempts=attempts, default_attempts=default
        )

    def _join(self, handling: FailureHandling) -> bool:
        """Join the group, after outages of the hub. False if the consumer is stopped before."""
        while not handling.stopping:
            try:
                self._poller.begin()
            except Exception as error:
                handling.pause(error)
            else:
                return True
        return False

    def wait(self, timeout: timedelta | str | None = None) -> bool:
        """Wait for the end of the thread that `start` began.

        Returns True if the thread has ended and the consumer has left the group, False if the
        timeout came first. Raises the error that ended the thread.
        """
        if self._thread is None or self._thread.current:
            raise Error("there is nothing to wait for", "valid: after start, outside its handlers")
        timeout_s = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        return self._thread.join(timeout_s)

    def shutdown(self) -> None:
        """End the iteration once the delivery in flight is done.

        Any thread may call it, a handler too; in a signal handler after `start` only while the main
        thread is in `wait`. After `start` it returns when the consumer has left the group, and
        raises the error that ended the thread.
        """
        self._session.stop()
        if self._thread is not None and not self._thread.current:
            self._thread.join()

    def stats(self) -> ConsumerStats:
        """Return the partitions and counts of now."""
        with self._session.state.lock:
            cursors = self._session.cursors
            counts = self._session.counts
            return ConsumerStats(
                partitions=tuple(sorted(cursors)),
                delivered=counts.delivered,
                acknowledged=counts.acknowledged,
                nacked=counts.nacked,
                in_flight=sum(cursor.in_flight for cursor in cursors.values()),
                held_back=sum(cursor.held_back for cursor in cursors.values()),
                failed=sum(cursor.failed for cursor in cursors.values()),
            )

    def __enter__(self) -> Self:
        self._poller.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._thread is not None and not self._thread.current:
            self.shutdown()
        self._poller.end(error)

    async def __aenter__(self) -> Self:
        await self._poller.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<Consumer {self.id} of group {self.group}>"


def _loop_runs() -> bool:
    """True if an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
