"""Single pushes, pipelined: taken at once, sent in batches by a thread, in the order they came."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from tailrace.backend.contract import Backend
from tailrace.errors import Error, HubClosed
from tailrace.log.record import OVERHEAD_BYTES
from tailrace.log.schema import settle_arrow
from tailrace.message import Receipts
from tailrace.topic.intake import Headers, Intake, Key, Time, milliseconds
from tailrace.topic.pending import Batch, Pending
from tailrace.topic.producer_name import ProducerName
from tailrace.topic.shipment import send
from tailrace.topic.view import View

T = TypeVar("T")

BATCHES_MAX: Final = 16
"""How many batches a producer holds, the one being sent included, before a push waits."""


class Producer(Generic[T]):
    """Pushes without waiting for each: `push` gives a `Pending` that has the receipt later.

    One batch is under way at a time, and a batch that a switch of the topic refused goes to the new
    storage topic before any later one, so the order per key is the order of the pushes. At most
    `BATCHES_MAX` batches are held; a push beyond that waits.

    A batch that fails takes the producer with it: what was pushed behind it fails with the same
    error, and so do later pushes, `flush` and `close`, because to go on would put later messages of
    a key before those that failed. Open another producer to go on.

    With a name it is idempotent. `last_number` is how many messages of the name are stored, so a
    restarted program goes on with the message after that many. Whoever opens the name last has it;
    the others are `Fenced`.
    """

    def __init__(
        self,
        view: View,
        intake: Intake[T],
        *,
        linger_s: float,
        batch_bytes: int,
        name: ProducerName | None,
    ) -> None:
        self._view = view
        self._intake = intake
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._name = name
        self._stored = 0
        self._error: BaseException | None = None
        self._closing = False
        self._waiting: deque[Batch] = deque()
        self._filling: Batch | None = None
        self._sending: Batch | None = None
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        settle_arrow()  # what is sent while the program ends is sent too
        self._thread = threading.Thread(
            target=self._run, name=f"tailrace {view.topic}", daemon=True
        )
        self._thread.start()
        _producers.add(self)

    @property
    def last_number(self) -> int:
        """How many messages are stored: of this name ever, or without a name by this producer."""
        return self._stored if self._name is None else self._name.stored

    def push(
        self, value: T, *, key: Key = None, headers: Headers = None, timestamp: Time = None
    ) -> Pending:
        """Take one message. Waits only while the producer holds as much as it may.

        A message that is not valid, or too large, raises here and harms no other.
        """
        intake = self._intake
        given: Any = value
        if type(given) is bytes and len(given) <= intake.raw_bytes_max and not headers:
            data, block = given, None
        else:
            data, block = intake.data(value, headers)
        if type(key) is bytes and len(key) <= intake.key_bytes_max:
            key_bytes = key
        else:
            key_bytes = intake.key(key)
        time_ms = intake.now_ms() if timestamp is None else milliseconds(timestamp)
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
        """Send all that was pushed, without lingering, and wait until it is stored.

        Raises what made the producer fail, and `TimeoutError` after `timeout` seconds.
        """
        with self._lock:
            last = self._waiting[-1] if self._waiting else self._sending
            for batch in self._waiting:
                batch.hurried = True
            self._work.notify()
        if last is not None:
            last.wait(timeout)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Send all that was pushed, and end. Raises what made the producer fail, the first time."""
        with self._lock:
            closed, self._closing = self._closing, True
            self._filling = None
            self._work.notify()
            self._room.notify_all()
        if not closed:
            self._thread.join()
            _producers.discard(self)
            if self._error is not None:
                raise self._error

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

    def _open_batch(self) -> Batch:
        """A new batch to fill, when there is room for one. Called with the lock held."""
        self._room.wait_for(
            lambda: (
                len(self._waiting) + (self._sending is not None) < BATCHES_MAX
                or self._error
                or self._closing
            )
        )
        if self._error is not None:
            raise self._error
        if self._closing:
            raise HubClosed(
                f"this producer of topic {self._view.topic!r} is closed", "open another"
            )
        batch = self._filling = Batch(time.monotonic())
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
                batch.settle(receipts, None)
            batch.call_back()

    def _next_batch(self) -> Batch | None:
        """Wait for a batch that is full, has lingered or is hurried; None when no more come."""
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
                if full or batch.hurried or left_s <= 0:
                    self._sending = self._waiting.popleft()
                    if not full:
                        self._filling = None
                    return batch
                self._work.wait(left_s)

    def _send(self, batch: Batch) -> Receipts:
        shipment = batch.shipment()
        if self._name is not None:
            return self._name.send(self._view, shipment)
        return shipment.receipts(send(self._view, shipment))

    def _fail(self, batch: Batch, error: BaseException) -> None:
        """Fail a batch, all behind it, and all pushes from now on."""
        with self._lock:
            self._error = error
            failed = [batch, *self._waiting]
            self._waiting.clear()
            self._filling = None
            self._sending = None
            self._room.notify_all()
            for each in failed:
                each.settle(None, error)
        for each in failed:
            each.call_back()

    def _abandon(self) -> None:
        """In a forked child, which has no thread to send: fail everything; the parent goes on."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closing = True
        self._filling = None
        held = [batch for batch in (self._sending, *self._waiting) if batch is not None]
        error = HubClosed("a producer does not outlive a fork", "open one in the child")
        self._error = error
        for batch in held:
            batch.abandon(error)


_producers: Final[weakref.WeakSet[Producer[Any]]] = weakref.WeakSet()


def close_producers(backend: Backend) -> None:
    """Close the producers of a hub, which sends what they hold; then raise the first error."""
    failed: Error | None = None
    for producer in list(_producers):
        if producer._view.backend is backend:
            try:
                producer.close()
            except Error as error:
                failed = failed or error
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


# Daemon threads end with the interpreter: what was pushed must be sent before.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
