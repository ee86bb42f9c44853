"""Appending columns, compared with writes to a plain file and with SQLite."""

from __future__ import annotations

from itertools import repeat
from pathlib import Path

import pyarrow as pa

import tailrace
from bench import payloads
from bench.measure import OURS, Scale, Timed, Timer, Turn, take_turns
from bench.peers import raw, sqlite
from bench.report import Row, against, figures_of, information

SMALL_BYTES = 100
SMALL_BATCH = 8_000
"""This number of records of 100 bytes, with keys and lengths, makes about 1 MB of log."""

LARGE_BYTES = 1_000
LARGE_BATCH = 1_000

RAW = "write of the same bytes"
RAW_SYNCED = "write + fdatasync"
SQLITE = "SQLite"
UNEVEN = "tailrace, 50 to 150 B"
SPREAD_THIN = "tailrace, 1 MB over the 12"

COLUMNS_REASON = (
    "encoding the columns takes as long as the write to the page cache, checking them, the CRC-32,"
    " the positions and the commit the rest"
)
KEYED_REASON = (
    "half of the time goes into hashing the keys, encoding, and sorting records by partition; a"
    " third into twelve small writes of records and positions with their checksums"
)
SYNCED_REASON = (
    "each batch is two syncs, of the segment and then of hub.db, which takes half as long as the"
    " first; and on a disk that syncs 1 MB in a millisecond, encoding and the CRC-32 take as long"
)


def rows(scale: Scale) -> list[Row]:
    """Measure appends."""
    batches = scale.count(64)
    return [
        _one_partition(scale, batches),
        _keyed(scale, batches),
        _synced(scale, scale.count(40)),
    ]


def _one_partition(scale: Scale, batches: int) -> Row:
    work = "append columns, 100 B, one partition, no sync"
    small = payloads.columns(SMALL_BATCH, SMALL_BYTES)
    uneven = payloads.uneven_columns(SMALL_BATCH, SMALL_BYTES)
    contenders = {
        OURS: _appending(small, batches, partitions=1, sync="none"),
        UNEVEN: _appending(uneven, batches, partitions=1, sync="none"),
        RAW: _writing(SMALL_BATCH, SMALL_BYTES, batches, sync=False),
        SQLITE: _inserting(SMALL_BATCH, SMALL_BYTES, batches, "NORMAL"),
    }
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    goals = (
        against(rates, RAW, 0.30, reason=COLUMNS_REASON),
        against(rates, SQLITE, 20, reason=COLUMNS_REASON),
    )
    return Row(work, figures_of(rates, "records"), goals)


def _keyed(scale: Scale, batches: int) -> Row:
    work = "append columns, 100 B, keyed over 12 partitions, no sync"
    wide = payloads.columns(12 * SMALL_BATCH, SMALL_BYTES)
    small = payloads.columns(SMALL_BATCH, SMALL_BYTES)
    contenders = {
        OURS: _appending(wide, max(1, batches // 12), partitions=12, sync="none"),
        SPREAD_THIN: _appending(small, batches, partitions=12, sync="none"),
        RAW: _writing(SMALL_BATCH, SMALL_BYTES, batches, sync=False),
    }
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    return Row(
        work, figures_of(rates, "records"), (against(rates, RAW, 0.15, reason=KEYED_REASON),)
    )


def _synced(scale: Scale, batches: int) -> Row:
    work = "append columns, 1 KB, a sync for every 1 MB"
    large = payloads.columns(LARGE_BATCH, LARGE_BYTES)
    contenders = {
        OURS: _appending(large, batches, partitions=1, sync="batch"),
        RAW_SYNCED: _writing(LARGE_BATCH, LARGE_BYTES, batches, sync=True),
        SQLITE: _inserting(LARGE_BATCH, LARGE_BYTES, batches, "FULL"),
    }
    rates = take_turns(work, contenders, scale.rounds)
    figures = (*figures_of(rates, "records"), *information(rates, SQLITE))
    return Row(work, figures, (against(rates, RAW_SYNCED, 0.6, reason=SYNCED_REASON),))


def _appending(batch: pa.RecordBatch, batches: int, *, partitions: int, sync: str) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with tailrace.open(directory / "hub", sync=sync, settings=tailrace.HubSettings()) as hub:
            topic = hub.create_topic("log", bytes, partitions=partitions)
            topic.append(batch)
            with timer.running():
                for _ in range(batches):
                    topic.append(batch)
        return batches * batch.num_rows

    return turn


def _writing(count: int, value_bytes: int, batches: int, *, sync: bool) -> Turn:
    data = payloads.log_bytes(count, value_bytes)

    def turn(directory: Path, timer: Timer) -> int:
        raw.write(directory, timer, repeat(data, batches), sync=sync)
        return batches * count

    return turn


def _inserting(count: int, value_bytes: int, batches: int, synchronous: str) -> Turn:
    batch = sqlite.rows(payloads.pairs(count, value_bytes))

    def turn(directory: Path, timer: Timer) -> int:
        with sqlite.opened(directory, synchronous) as connection:
            sqlite.insert(connection, batch)
            with timer.running():
                for _ in range(batches):
                    sqlite.insert(connection, batch)
        return batches * count

    return turn
