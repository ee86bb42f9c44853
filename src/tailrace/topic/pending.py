"""Messages that a producer has taken and not yet stored, and what their pushers hold meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from tailrace.log.messages import encode_messages
from tailrace.message import Receipt, Receipts
from tailrace.topic.shipment import Shipment

_log: Final = logging.getLogger("tailrace.producer")


class Batch:
    """Messages that are sent together. The producer fills it under its lock and settles it once."""

    __slots__ = (
        "_callbacks", "_settled", "error", "headers", "hurried", "keys", "opened", "receipts",
        "size_bytes", "timestamps", "values",
    )  # fmt: skip

    def __init__(self, opened: float) -> None:
        self.opened = opened
        self.hurried = False
        self.size_bytes = 0
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Mapping[str, bytes]] = {}
        self.receipts: Receipts | None = None
        self.error: BaseException | None = None
        self._settled = threading.Event()
        self._callbacks: list[tuple[Callable[[Pending], object], Pending]] = []

    def shipment(self) -> Shipment:
        """Its messages, encoded."""
        encoded = encode_messages(self.keys, self.values, self.timestamps, self.headers)
        return Shipment(encoded, self.keys)

    def settle(self, receipts: Receipts | None, error: BaseException | None) -> None:
        """Wake whoever waits: its messages are stored, or they are not. `call_back` must follow."""
        self.receipts = receipts
        self.error = error
        self.keys, self.values, self.timestamps, self.headers = [], [], [], {}
        self._settled.set()

    def abandon(self, error: BaseException) -> None:
        """In a forked child: fail it, whatever a thread of the parent was doing with it."""
        self._settled = threading.Event()
        self.settle(None, error)

    @property
    def settled(self) -> bool:
        """Whether it is known what became of its messages."""
        return self._settled.is_set()

    def wait(self, timeout: float | None) -> None:
        """Until it is settled; `TimeoutError` when that takes longer."""
        if not self._settled.wait(timeout):
            raise TimeoutError(f"not stored within {timeout} s; it may still be")

    def when_settled(self, callback: Callable[[Pending], object], pending: Pending) -> None:
        """Call back once settled, or at once."""
        self._callbacks.append((callback, pending))
        if self.settled:
            self.call_back()

    def call_back(self) -> None:
        """Make the calls that wait for the outcome, each once, also with two threads here."""
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
    """The outcome of a pipelined push, as `concurrent.futures.Future` has it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.settled

    def result(self, timeout: float | None = None) -> Receipt:
        """The receipt, or what went wrong raised; `TimeoutError` after `timeout` seconds."""
        self._batch.wait(timeout)
        if self._batch.receipts is None:
            raise self._batch.error or AssertionError("settled without an outcome")
        return self._batch.receipts[self._index]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, or None when the message is stored; waits as `result` does."""
        self._batch.wait(timeout)
        return self._batch.error

    def add_done_callback(self, callback: Callable[[Pending], object]) -> None:
        """Call `callback(self)` once the outcome is known, in the producer's thread, or now.

        What it raises is logged and otherwise ignored.
        """
        self._batch.when_settled(callback, self)

    def __repr__(self) -> str:
        state = "failed" if self._batch.error else "stored" if self.done() else "under way"
        return f"<Pending {state}>"
