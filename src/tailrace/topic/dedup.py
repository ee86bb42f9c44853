"""Deduplication: one message per `dedup_id`, over a window of time.

Each topic has two tables: ``dedup/TOPIC/IDENTITY`` has the place of each id's message, and
``dedup-times/TOPIC/IDENTITY`` has the ids by time. A push writes both in the commit that stores the
message, under the condition that the id does not exist. Ids older than the window are removed only
under the fence ``dedup/TOPIC``. So an id that was read and found expired cannot be removed after
another process has removed it and pushed it again.

An offset is known only after its commit. The table therefore has the partition's end offset before
the commit, and the record has the id as a header: the message is the first record with that header
at or after that offset.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from tailrace.backend.contract import TableKey, Transaction, raise_fence
from tailrace.clock import Clock
from tailrace.errors import Busy, Conflict, Fenced, InvalidValue, OutcomeUnknown, OutOfRange
from tailrace.log.record import OVERHEAD_BYTES, Record
from tailrace.message import Partition, Range, Receipt
from tailrace.topic.reading import records_from
from tailrace.topic.view import View, commit_following

DEDUP_ID: Final = "dedup-id"
"""The header of a message that was pushed with a `dedup_id`."""

ID_BYTES_MAX: Final = 1024
"""The longest `dedup_id`, in UTF-8."""

PRUNE_EVERY: Final = 64
"""One of this number of pushes with ids removes expired ids."""

PRUNE_MAX: Final = 256
"""The largest number of expired ids that are removed at once."""

ATTEMPTS_MAX: Final = 5
"""The number of attempts of one push, when outcomes are unknown or its id has just expired."""

_TIME_BYTES: Final = 8


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """An id that was pushed at `time_ms`: its record is in the partition, at `hint` or later."""

    time_ms: int
    storage: int
    number: int
    hint: int


class Dedup:
    """Pushes with ids to one topic."""

    def __init__(self, view: View, window_ms: int, clock: Clock) -> None:
        self._view = view
        self._window_ms = window_ms
        self._clock = clock
        self._pushes = 0
        self._ids, self._times = dedup_tables(view.topic, view.definition.identity)

    def push(self, record: Record, dedup_id: str) -> Receipt:
        """Store the record unless its id was pushed within the window; return its receipt, or the
        receipt of the first push."""
        if not isinstance(dedup_id, str) or not 1 <= len(dedup_id.encode()) <= ID_BYTES_MAX:
            raise InvalidValue("dedup_id", dedup_id, f"text of 1 to {ID_BYTES_MAX} bytes")
        if self._pushes % PRUNE_EVERY == 0:
            self._prune()
        self._pushes += 1
        id_bytes = dedup_id.encode()
        record = record._replace(headers={**(record.headers or {}), DEDUP_ID: id_bytes})
        for _ in range(ATTEMPTS_MAX):
            try:
                return self._push_new(record, id_bytes)
            except OutcomeUnknown:
                # The retry checks the outcome: if the message was stored, its id exists.
                continue
            except Conflict as conflict:
                seen = _decode(conflict.value or b"")
            if not self._expired(seen):
                return self._receipt(seen, id_bytes)
            self._remove_expired([id_bytes])
        raise Busy(
            f"dedup_id {dedup_id!r} was not stored in {ATTEMPTS_MAX} attempts", "push it again"
        )

    def _push_new(self, record: Record, id_bytes: bytes) -> Receipt:
        view, now_ms = self._view, self._clock.now_ms()
        key = TableKey(self._ids, id_bytes)

        def build() -> Transaction:
            target = view.target
            partition = target.partition_of(record.key)
            hint = view.backend.log.bounds(partition).end
            seen = _Seen(now_ms, partition.storage, partition.number, hint)
            times = TableKey(self._times, _time_key(now_ms, id_bytes))
            return Transaction(
                appends=((partition, (record,)),),
                table={key: msgspec.msgpack.encode(seen), times: b""},
                absent=(key,),
                since=target.since,
            )

        def commit() -> list[Range]:
            return commit_following(view.backend, {view.topic: view}, build)

        size_bytes = OVERHEAD_BYTES + len(record.key or b"") + len(record.value)
        [stored] = view.pushes.count(1, size_bytes, commit)
        return Receipt(*stored.partition, stored.start, record.timestamp)

    def _receipt(self, seen: _Seen, id_bytes: bytes) -> Receipt:
        """Find the record of a stored id, and return its receipt."""
        partition = Partition(self._view.topic, seen.storage, seen.number)
        self._view.refresh().definition.check_held(partition, seen.hint)
        log = self._view.backend.log
        for record in records_from(log, partition, seen.hint):
            if record.headers and record.headers.get(DEDUP_ID) == id_bytes:
                return Receipt(*partition, record.offset, record.timestamp)
        raise OutOfRange(str(partition), seen.hint, *log.bounds(partition)[:2])

    def _prune(self) -> None:
        """Remove some expired ids."""
        until = _time_key(max(0, self._clock.now_ms() - self._window_ms), b"")
        entries = self._view.backend.table.scan(self._times, b"", until, PRUNE_MAX)
        if entries:
            self._remove_expired([key[_TIME_BYTES:] for key, _ in entries])

    def _remove_expired(self, ids: list[bytes]) -> None:
        """Remove those of the ids that are expired, unless another process is removing some."""
        backend = self._view.backend
        fence = raise_fence(backend.store, f"dedup/{self._view.topic}")
        writes: dict[TableKey, None] = {}
        for id_bytes in ids:
            value = backend.table.get(self._ids, id_bytes)
            if value is not None and self._expired(seen := _decode(value)):
                writes[TableKey(self._ids, id_bytes)] = None
                writes[TableKey(self._times, _time_key(seen.time_ms, id_bytes))] = None
        with contextlib.suppress(Fenced):
            backend.commit(Transaction(table=writes, fence=fence))

    def _expired(self, seen: _Seen) -> bool:
        return seen.time_ms < self._clock.now_ms() - self._window_ms


def dedup_tables(topic: str, identity: str) -> tuple[str, str]:
    """Return the tables of a topic's ids, and of their times."""
    return f"dedup/{topic}/{identity}", f"dedup-times/{topic}/{identity}"


def _decode(value: bytes) -> _Seen:
    return msgspec.msgpack.decode(value, type=_Seen)


def _time_key(time_ms: int, id_bytes: bytes) -> bytes:
    return time_ms.to_bytes(_TIME_BYTES, "big") + id_bytes
