"""Pipelined pushes: queued at once, sent in batches by a thread, in the order of the pushes."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from tailrace.backend.contract import Backend
from tailrace.backend.pickling import Unpicklable
from tailrace.errors import Error, HubClosed
from tailrace.log.record import OVERHEAD_BYTES
from tailrace.log.schema import import_pandas_now
from tailrace.message import Receipts
from tailrace.reporting.reporters import reporters_of
from tailrace.topic.pending import Pending, PendingBatch
from tailrace.topic.producer_name import ProducerName
from tailrace.topic.push_reporter import QueueReporter
from tailrace.topic.record_builder import Headers, Key, RecordBuilder, Time, milliseconds
from tailrace.topic.routed_batch import send
from tailrace.topic.view import View

T = TypeVar("T")

BATCHES_MAX: Final = 16
"""The number of batches a producer holds, the one being sent included, before a push waits."""


class Producer(Unpicklable, Generic[T]):
    """A producer that does not wait for each push: `push` returns a `Pending` for the receipt.

    One batch is sent at a time. A batch that is refused because the topic was switched goes to the
    new storage topic before any later batch, so the order per key is the order of the pushes. A
    producer holds at most `BATCHES_MAX` batches; further pushes wait.

    When a batch fails, the producer fails: all messages pushed after it fail with the same error,
    and so do later pushes, `flush` and `close`, because later messages of a key would otherwise be
    stored before those that failed. Open another producer to continue.

    A producer with a name is idempotent. `last_number` is the number of stored messages of the
    name, so a restarted program continues with the next message. The producer that opens the name
    last has it; all earlier ones are `Fenced`.
    """

    def __init__(
        self,
        view: View,
        builder: RecordBuilder[T],
        *,
        linger_s: float,
        batch_bytes: int,
        name: ProducerName | None,
    ) -> None:
        self._view = view
        self._builder = builder
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._name = name
        self._stored = 0
        self._error: BaseException | None = None
        self._raised = False
        self._failed: list[PendingBatch] = []
        self._closing = False
        self._waiting: deque[PendingBatch] = deque()
        self._filling: PendingBatch | None = None
        self._sending: PendingBatch | None = None
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        import_pandas_now()  # Batches are still sent while the interpreter shuts down.
        self._thread = threading.Thread(
            target=self._run, name=f"tailrace {view.topic}", daemon=True
        )
        self._thread.start()
        _producers.add(self)
        self._reporter = QueueReporter(view.topic, self._queued)
        reporters_of(view.backend).add(self._reporter)

    @property
    def last_number(self) -> int:
        """The number of stored messages: of this name ever, or without a name by this producer."""
        return self._stored if self._name is None else self._name.stored

    def push(
        self, value: T, *, key: Key = None, headers: Headers = None, timestamp: Time = None
    ) -> Pending:
        """Queue one message. Waits only while the producer holds `BATCHES_MAX` batches.

        An invalid or too large message raises here and does not affect others.
        """
        builder = self._builder
        given: Any = value
        if type(given) is bytes and len(given) <= builder.raw_bytes_max and not headers:
            data, block = given, None
        else:
            data, block = builder.data(value, headers)
        if type(key) is bytes and len(key) <= builder.raw_key_bytes_max:
            key_bytes = key
        elif builder.order_by is None:
            key_bytes = builder.key(key)
        else:
            key_bytes = builder.ordered_key(key, data, block)
        time_ms = builder.now_ms() if timestamp is None else milliseconds(timestamp)
        with self._lock:
            batch = self._filling or self._open_batch()
            index = len(batch.values)
            batch.values.append(data)
            batch.keys.append(key_bytes)
            batch.timestamps.append(time_ms)
            batch.size_bytes += OVERHEAD_BYTES + len(data) + len(key_bytes)
            if block is not None:
                batch.headers[index] = block
                batch.size_bytes += sum(len(name) + len(held) for name, held in block.items())
            if batch.size_bytes >= self._batch_bytes:
                self._filling = None
                self._work.notify()
        return Pending(batch, index)

    def flush(self, timeout: float | None = None) -> None:
        """Send all queued messages without lingering, and wait until they are stored.

        Raises the error that failed the producer, and `TimeoutError` after `timeout` seconds.
        """
        with self._lock:
            last = self._waiting[-1] if self._waiting else self._sending
            for batch in self._waiting:
                batch.flushed = True
            self._work.notify()
        if last is not None:
            last.wait(timeout)
        if self._error is not None:
            raise self._reported(self._error)

    def close(self) -> None:
        """Send all queued messages, and close. Raises the error that failed the producer, once."""
        with self._lock:
            closed, self._closing = self._closing, True
            self._filling = None
            self._work.notify()
            self._room.notify_all()
        if not closed:
            self._thread.join()
            _producers.discard(self)
            if self._error is not None:
                raise self._reported(self._error)

    @property
    def _has_reported(self) -> bool:
        """True if a caller has received the error that failed the producer."""
        return self._raised or any(batch.reported for batch in self._failed)

    def _reported(self, error: BaseException) -> BaseException:
        self._raised = True
        return error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(Error):
                self.close()

    def _queued(self) -> int:
        """Return the number of messages that are not stored yet."""
        with self._lock:
            batches = [*self._waiting] + ([self._sending] if self._sending is not None else [])
            return sum(len(batch.values) for batch in batches)

    def _open_batch(self) -> PendingBatch:
        """Return a new batch to fill, once the producer may hold one more. Called with the lock."""
        self._room.wait_for(
            lambda: (
                len(self._waiting) + (self._sending is not None) < BATCHES_MAX
                or self._error
                or self._closing
            )
        )
        if self._error is not None:
            raise self._reported(self._error)
        if self._closing:
            raise HubClosed(
                f"this producer of topic {self._view.topic!r} is closed", "open another"
            )
        batch = self._filling = PendingBatch(time.monotonic())
        self._waiting.append(batch)
        self._work.notify()
        return batch

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                receipts = self._send(batch)
            except BaseException as error:
                self._fail(batch, error)
                return
            with self._lock:
                self._stored += len(receipts)
                self._sending = None
                self._room.notify()
                batch.resolve(receipts, None)
            batch.call_back()

    def _next_batch(self) -> PendingBatch | None:
        """Wait for a batch that is full, has lingered or is flushed; None after `close`."""
        with self._lock:
            while True:
                if not self._waiting:
                    if self._closing:
                        return None
                    self._work.wait()
                    continue
                batch = self._waiting[0]
                left_s = batch.opened + self._linger_s - time.monotonic()
                full = batch is not self._filling
                if full or batch.flushed or left_s <= 0:
                    self._sending = self._waiting.popleft()
                    if not full:
                        self._filling = None
                    return batch
                self._work.wait(left_s)

    def _send(self, batch: PendingBatch) -> Receipts:
        encoded = batch.encoded()
        if self._name is not None:
            send_named = partial(self._name.send, self._view, encoded)
            return self._view.pushes.count(len(encoded), encoded.size_bytes, send_named)
        return encoded.receipts(send(self._view, encoded))

    def _fail(self, batch: PendingBatch, error: BaseException) -> None:
        """Fail a batch, all batches after it, and all later pushes."""
        with self._lock:
            self._error = error
            failed = self._failed = [batch, *self._waiting]
            self._waiting.clear()
            self._filling = None
            self._sending = None
            self._room.notify_all()
            for each in failed:
                each.resolve(None, error)
        for each in failed:
            each.call_back()

    def _abandon(self) -> None:
        """In a forked child, which has no sender thread: fail everything; the parent is
        unaffected."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closing = True
        self._filling = None
        held = [batch for batch in (self._sending, *self._waiting) if batch is not None]
        error = HubClosed("a producer cannot be used after a fork", "open one in the child")
        self._error = error
        for batch in held:
            batch.abandon(error)


_producers: Final[weakref.WeakSet[Producer[Any]]] = weakref.WeakSet()


def close_producers(backend: Backend) -> None:
    """Close the producers of a hub, which sends their messages; then raise the first error that no
    caller has received."""
    failed: Error | None = None
    for producer in list(_producers):
        if producer._view.backend is backend:
            reported = producer._has_reported
            try:
                producer.close()
            except Error as error:
                failed = failed or (None if reported else error)
    if failed is not None:
        raise failed


def _close_all() -> None:
    for producer in list(_producers):
        with contextlib.suppress(Error):
            producer.close()


def _abandon_all() -> None:
    for producer in list(_producers):
        producer._abandon()
    _producers.clear()


# Daemon threads end with the interpreter, so queued messages must be sent before that.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
