"""Messages that a producer has queued and not yet stored, and the futures of their pushes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from tailrace.log.messages import encode_messages
from tailrace.message import Receipt, Receipts
from tailrace.topic.routed_batch import RoutedBatch

_log: Final = logging.getLogger("tailrace.producer")


class PendingBatch:
    """Messages that are sent together. The producer fills it under its lock and resolves it
    once."""

    __slots__ = (
        "_callbacks",
        "_resolved",
        "error",
        "flushed",
        "headers",
        "keys",
        "opened",
        "receipts",
        "reported",
        "size_bytes",
        "timestamps",
        "values",
    )  # fmt: skip

    def __init__(self, opened: float) -> None:
        self.opened = opened
        self.flushed = False
        self.size_bytes = 0
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Mapping[str, bytes]] = {}
        self.receipts: Receipts | None = None
        self.error: BaseException | None = None
        self.reported = False
        """True once a caller has received the error."""
        self._resolved = threading.Event()
        self._callbacks: list[tuple[Callable[[Pending], object], Pending]] = []

    def encoded(self) -> RoutedBatch:
        """The messages, encoded."""
        encoded = encode_messages(self.keys, self.values, self.timestamps, self.headers)
        return RoutedBatch(encoded, self.keys)

    def resolve(self, receipts: Receipts | None, error: BaseException | None) -> None:
        """Wake all waiters: the messages are stored, or they failed. `call_back` must follow."""
        self.receipts = receipts
        self.error = error
        self.keys, self.values, self.timestamps, self.headers = [], [], [], {}
        self._resolved.set()

    def abandon(self, error: BaseException) -> None:
        """In a forked child: fail the batch, in whatever state a thread of the parent left it."""
        self._resolved = threading.Event()
        self.resolve(None, error)

    @property
    def resolved(self) -> bool:
        """True if the outcome of the messages is known."""
        return self._resolved.is_set()

    def wait(self, timeout: float | None) -> None:
        """Wait until the batch is resolved; `TimeoutError` after `timeout` seconds."""
        if not self._resolved.wait(timeout):
            raise TimeoutError(
                f"not stored within {timeout} s; the message may still be stored later"
            )

    def when_resolved(self, callback: Callable[[Pending], object], pending: Pending) -> None:
        """Call back once the batch is resolved, or at once if it is."""
        self._callbacks.append((callback, pending))
        if self.resolved:
            self.call_back()

    def call_back(self) -> None:
        """Make each call that waits for the outcome once, also if two threads call this."""
        while self._callbacks:
            try:
                callback, pending = self._callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(pending)
            except Exception:
                _log.exception("a callback of a pipelined push failed")


class Pending:
    """The outcome of a pipelined push, with the interface of `concurrent.futures.Future`."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """True if the outcome is known."""
        return self._batch.resolved

    def result(self, timeout: float | None = None) -> Receipt:
        """Return the receipt, or raise the error of the push; `TimeoutError` after `timeout`
        seconds."""
        self._batch.wait(timeout)
        if self._batch.receipts is None:
            self._batch.reported = True
            raise self._batch.error or AssertionError("resolved without an outcome")
        return self._batch.receipts[self._index]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the push, or None if the message is stored; waits as `result`
        does."""
        self._batch.wait(timeout)
        self._batch.reported = self._batch.error is not None
        return self._batch.error

    def add_done_callback(self, callback: Callable[[Pending], object]) -> None:
        """Call `callback(self)` once the outcome is known, in the producer's thread, or now.

        An exception of the callback is logged and otherwise ignored.
        """
        self._batch.when_resolved(callback, self)

    def __repr__(self) -> str:
        state = "failed" if self._batch.error else "stored" if self.done() else "pending"
        return f"<Pending {state}>"
