"""Records to append, and how to read them back, on any backend that keeps the contract.

Offsets may have gaps and begin anywhere. A commit may become visible a little later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

import pyarrow as pa

from tailrace.backend.contract import Backend, Change, Fence, StorageTopic, Transaction
from tailrace.log.columns import SCHEMA, records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition, Range

TOPIC = StorageTopic("orders", 0, 3)
P0, P1, P2 = (Partition(TOPIC.topic, TOPIC.storage, number) for number in range(TOPIC.partitions))
CHUNK_BYTES = 1 << 20
VISIBLE_S = 30.0


def record(
    value: bytes,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    timestamp: int = 1_495_000_000_000,
    mode: Mode = Mode.COPY,
    op: Op = Op.INSERT,
) -> Record:
    """Return a record to append. The backend chooses its offset."""
    return Record(0, timestamp, mode, op, key, headers, value)


def records(*values: bytes) -> tuple[Record, ...]:
    """Return records with these values."""
    return tuple(record(value) for value in values)


def columns(rows: Iterable[Record]) -> pa.RecordBatch:
    """Return the same records as Arrow columns."""
    listed = [
        row._asdict() | {"headers": None if row.headers is None else list(row.headers.items())}
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(listed, schema=SCHEMA)


def create(backend: Backend, storage: StorageTopic = TOPIC) -> None:
    """Create a storage topic; by default the one that most tests use."""
    backend.store.commit(Change(create=(storage,)))


def commit(backend: Backend, transaction: Transaction) -> list[Range]:
    """Commit a transaction, and return when all of it is visible."""
    ranges = backend.commit(transaction)
    with closing(backend.follower()) as follower:
        for landed in ranges:
            follower.arm()
            while backend.log.bounds(landed.partition).end < landed.end:
                assert follower.wait(VISIBLE_S), f"{landed} did not become visible"
                follower.arm()
    return ranges


def append(
    backend: Backend, partition: Partition, *values: bytes, fence: Fence | None = None
) -> Range:
    """Append records with these values in one transaction."""
    (landed,) = commit(backend, Transaction(((partition, records(*values)),), fence=fence))
    return landed


def read(
    backend: Backend,
    partition: Partition,
    start: int | None = None,
    end: int | None = None,
    bytes_max: int = CHUNK_BYTES,
) -> list[Record]:
    """Return all records from `start` to `end`, read chunk by chunk."""
    position = backend.log.bounds(partition).start if start is None else start
    found: list[Record] = []
    while True:
        chunk = backend.log.read(partition, position, bytes_max, end)
        assert chunk.records.schema.equals(SCHEMA)
        found += records_of(chunk.records)
        if chunk.next_offset == position:
            assert chunk.records.num_rows == 0
            return found
        assert chunk.next_offset > position
        position = chunk.next_offset


def values(backend: Backend, partition: Partition) -> list[bytes]:
    """Return the values of all records of a partition, in order."""
    return [found.value for found in read(backend, partition)]
