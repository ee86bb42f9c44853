"""Reading columns with checksums, compared with loops that build a tuple for each record."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pyarrow as pa

import tailrace
from bench import payloads
from bench.measure import OURS, Scale, Timed, Timer, take_turns
from bench.peers import lmdb, sqlite
from bench.report import Row, against, figures_of, information

BATCH = 8_000
VALUE_BYTES = 100
STRUCT_LOOP = "struct loop"
SQLITE = "SQLite"
LMDB = "LMDB"
UNEVEN = "tailrace, 50 to 150 B"

REASON = (
    "half of the time is decoding; the rest is reading the file, the CRC-32 and looking the batch"
    " up in hub.db"
)


def rows(scale: Scale) -> list[Row]:
    """Measure reads."""
    work = "read columns, 100 B, checksums verified"
    reading = _Reading(scale.count(64))
    contenders = {
        OURS: reading.ours,
        UNEVEN: reading.uneven,
        STRUCT_LOOP: reading.struct_loop,
        SQLITE: reading.sqlite,
        LMDB: reading.lmdb,
    }
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    figures = (*figures_of(rates, "records"), *information(rates, LMDB))
    goals = (
        against(rates, STRUCT_LOOP, 4, reason=REASON),
        against(rates, SQLITE, 8, reason=REASON),
    )
    return [Row(work, figures, goals)]


class _Reading:
    """Turns that write batches, and then read them back from the cache."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def ours(self, directory: Path, timer: Timer) -> int:
        return self._columns(directory, timer, payloads.columns(BATCH, VALUE_BYTES))

    def uneven(self, directory: Path, timer: Timer) -> int:
        return self._columns(directory, timer, payloads.uneven_columns(BATCH, VALUE_BYTES))

    def _columns(self, directory: Path, timer: Timer, batch: pa.RecordBatch) -> int:
        settings = tailrace.HubSettings()
        with tailrace.open(directory / "hub", sync="none", settings=settings) as hub:
            topic = hub.create_topic("log", bytes, partitions=1)
            for _ in range(self._batches):
                topic.append(batch)
            with timer.running():
                return sum(read.num_rows for read in topic.batches(0, 0))

    def struct_loop(self, directory: Path, timer: Timer) -> int:
        path = directory / "plain.log"
        path.write_bytes(payloads.log_bytes(BATCH, VALUE_BYTES) * self._batches)
        with timer.running():
            deque(payloads.struct_tuples(path.read_bytes()), maxlen=0)
        return self._batches * BATCH

    def sqlite(self, directory: Path, timer: Timer) -> int:
        with sqlite.opened(directory, "OFF") as connection:
            batch = sqlite.rows(payloads.pairs(BATCH, VALUE_BYTES))
            for _ in range(self._batches):
                sqlite.insert(connection, batch)
            with timer.running():
                deque(connection.execute("SELECT * FROM log ORDER BY offset"), maxlen=0)
        return self._batches * BATCH

    def lmdb(self, directory: Path, timer: Timer) -> int:
        with lmdb.opened(directory) as environment:
            for number in range(self._batches):
                lmdb.put(environment, payloads.pairs(BATCH, VALUE_BYTES), number * BATCH)
            with timer.running():
                deque(lmdb.tuples(environment), maxlen=0)
        return self._batches * BATCH
