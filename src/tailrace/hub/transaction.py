"""Pushes to several topics, and table writes, that are stored together or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction
from tailrace.backend.pickling import Unpicklable
from tailrace.errors import Error, InvalidValue, MessageTooLarge
from tailrace.hub.topic import Topic
from tailrace.log.record import OVERHEAD_BYTES, Record
from tailrace.message import Receipt
from tailrace.topic.internal_topics import check_not_queue
from tailrace.topic.record_builder import Headers, Key, Time
from tailrace.topic.routed_batch import RoutedBatch
from tailrace.topic.view import commit_following

TRANSACTION_BYTES_MAX: Final = 256 << 20
"""The largest size of one transaction, which is collected in memory."""


class OpenTransaction(Unpicklable):
    """A transaction that collects writes in memory and commits them when its `with` block ends
    without an exception.

    Nothing is locked while the block runs. Messages are routed at the commit, and routed again if a
    topic was switched meanwhile. With a fence, the commit is `Fenced` once a newer owner has the
    name.
    """

    def __init__(
        self, backend: Backend, find_topic: Callable[[str], Topic[Any]], fence: Fence | None
    ) -> None:
        self._backend = backend
        self._find_topic = find_topic
        self._fence = fence
        self._topics: dict[str, Topic[Any]] = {}
        self._records: dict[str, list[Record]] = {}
        self._order: list[tuple[str, int]] = []
        self._table: dict[TableKey, bytes | None] = {}
        self._size_bytes = 0
        self._begun = False
        self._ended = False
        self._receipts: list[Receipt] | None = None

    def push(
        self,
        topic: str | Topic[Any],
        value: object,
        *,
        key: Key = None,
        headers: Headers = None,
        timestamp: Time = None,
    ) -> None:
        """Add a message. An invalid message or topic raises here, not at the commit."""
        self._check_open()
        found = self._topic(topic)
        check_not_queue(found.name)
        record = found.builder.record(value, key, headers, timestamp)
        self._grow(OVERHEAD_BYTES + len(record.key or b"") + len(record.value))
        records = self._records.setdefault(found.name, [])
        self._order.append((found.name, len(records)))
        records.append(record)

    def put(self, table: str, key: bytes, value: bytes | None) -> None:
        """Set a key of a table, or remove it with None. The last `put` of a key wins."""
        self._check_open()
        self._grow(len(key) + len(value or b""))
        self._table[TableKey(table, key)] = value

    @property
    def receipts(self) -> Sequence[Receipt]:
        """The positions of the messages, in the order of pushes; an `Error` before the commit."""
        if self._receipts is None:
            raise Error(
                "the transaction is not committed", "read its receipts after the with block"
            )
        return self._receipts

    def __enter__(self) -> Self:
        self._begun = True
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        if error is None:
            self._commit()

    def _commit(self) -> None:
        if not self._records and not self._table:
            self._receipts = []
            return
        views = {name: topic.view for name, topic in self._topics.items()}
        batches = {name: RoutedBatch.of_records(records) for name, records in self._records.items()}
        counts: list[int] = []

        def build() -> Transaction:
            targets = {name: views[name].target for name in batches}
            parts = [batches[name].route(target) for name, target in targets.items()]
            counts[:] = map(len, parts)
            appends = tuple(append for part in parts for append in part)
            since = dict(pair for target in targets.values() for pair in target.since.items())
            return Transaction(appends, self._table, self._fence, since=since)

        began = time.monotonic()
        try:
            ranges = commit_following(self._backend, views, build)
        except BaseException:
            for name in batches:
                views[name].pushes.failed()
            raise
        seconds = time.monotonic() - began
        for name, batch in batches.items():
            views[name].pushes.pushed(len(batch), batch.size_bytes, seconds)
        receipts: dict[str, Sequence[Receipt]] = {}
        for (name, batch), count in zip(batches.items(), counts, strict=True):
            receipts[name] = batch.receipts(ranges[:count])
            ranges = ranges[count:]
        self._receipts = [receipts[name][index] for name, index in self._order]

    def _topic(self, topic: str | Topic[Any]) -> Topic[Any]:
        if isinstance(topic, Topic):
            if topic.view.backend is not self._backend:
                valid = f"a topic of {self._backend.name}, the hub of this transaction"
                raise InvalidValue("topic", topic, valid)
            return self._topics.setdefault(topic.name, topic)
        if not isinstance(topic, str):
            raise InvalidValue("topic", topic, "a name or a Topic")
        if topic not in self._topics:
            self._topics[topic] = self._find_topic(topic)
        return self._topics[topic]

    def _grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        if self._size_bytes > TRANSACTION_BYTES_MAX:
            raise MessageTooLarge(
                "a transaction", self._size_bytes, TRANSACTION_BYTES_MAX, "a fixed limit"
            )

    def _check_open(self) -> None:
        if self._ended:
            raise Error("the transaction has ended", "begin a new one")
        if not self._begun:
            raise Error(
                "the transaction has not begun: its with block commits it",
                "write: with hub.transaction() as tx: tx.push(...)",
            )
