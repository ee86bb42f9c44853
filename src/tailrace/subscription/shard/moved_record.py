"""The records of RQ and DLQ: the message as it was, and headers that say where it came from.

tailrace.position   its position in the topic
tailrace.reset      the number of the reset after which it was read; absent for 0
tailrace.timestamp  its timestamp there, in milliseconds
tailrace.writer     in DLQ: the subscription
tailrace.error      in DLQ: the last error, or why it follows
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.delivery.dead_letters.letter import ERROR, POSITION, TIMESTAMP, WRITER
from tailrace.log.record import Record
from tailrace.log.redelivered import REPLAYED, shown_headers
from tailrace.message import Mode, Op, Partition, Position
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.commit import Move
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import Queue

RESET: Final = "tailrace.reset"

_ADDED: Final = frozenset((POSITION, TIMESTAMP, RESET, WRITER, ERROR))
_MODES: Final = tuple(Mode)
_OPS: Final = tuple(Op)


def origin_of(queue: Queue, record: RecordRow) -> Origin:
    """Return the origin of a message that was read from a queue."""
    batch, row = record
    if queue is Queue.MQ:
        return Origin(batch.partition, batch.offsets[row], batch.reset)
    return origin_in(batch.headers_of(row))


def origin_in(headers: Mapping[str, bytes]) -> Origin:
    """Return the origin that the headers of a record of RQ or DLQ have."""
    topic, storage, number, offset = Position.parse(headers[POSITION].decode())
    return Origin(Partition(topic, storage, number), offset, int(headers.get(RESET, b"0")))


def original_headers(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the headers that a message of RQ or DLQ had in MQ."""
    return {name: value for name, value in headers.items() if name not in _ADDED}


def original_record(queue: Queue, record: RecordRow, origin: Origin) -> Record:
    """Return a message as it was read from MQ, wherever it was read now."""
    batch, row = record
    headers = _kept_headers(record)
    timestamp = batch.timestamps[row]
    if queue is not Queue.MQ:
        timestamp = int(headers.get(TIMESTAMP, timestamp))
        headers = original_headers(headers)
    return Record(
        origin.offset,
        timestamp,
        _MODES[batch.modes[row]],
        _OPS[batch.ops[row]],
        batch.keys[row],
        headers or None,
        batch.values[row],
    )


def _kept_headers(record: RecordRow) -> dict[str, bytes]:
    """Return the headers that stay with a message wherever it is: those that users see, and the
    replay that has pushed it again."""
    batch, row = record
    stored = batch.stored_headers_of(row)
    headers = dict(shown_headers(stored))
    replay = stored.get(REPLAYED)
    return headers if replay is None else {**headers, REPLAYED: replay}


def moved_record(move: Move, subscription: str, now_ms: int) -> Record:
    """Return the record to append for a message that moves to RQ or DLQ."""
    batch, row = move.record
    origin = move.origin
    headers = _kept_headers(move.record)
    if move.source is Queue.MQ:
        headers[POSITION] = f"{origin.partition}@{origin.offset}".encode()
        headers[TIMESTAMP] = str(batch.timestamps[row]).encode()
        if origin.reset:
            headers[RESET] = str(origin.reset).encode()
    if move.target is Queue.DLQ:
        headers[WRITER] = subscription.encode()
        headers[ERROR] = move.error.encode()
    return Record(
        0,
        now_ms,
        _MODES[batch.modes[row]],
        _OPS[batch.ops[row]],
        batch.keys[row],
        headers,
        batch.values[row],
    )
