"""A batch on its way into the commit log and the dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.backend.contract import Records
from tailrace.log.columns import encode, records_of, split
from tailrace.log.record import Encoded, Record, header_block
from tailrace.log.vectors import row_lengths
from tailrace.message import Mode, Op, Partition, Position, Range
from tailrace.source.headers import CUT, ERROR, READER, WHERE, error_text
from tailrace.source.reader import BadRecord, Batch
from tailrace.source.split_state import checksum
from tailrace.topic.target import Target
from tailrace.topic.topic import Topic
from tailrace.topic.view import View


class Outlet:
    """Where the batches of a source go: its commit log and its dead letters."""

    def __init__(self, source: str, commit_log: Topic[Any], dead_letters: Topic[Any]) -> None:
        self.source = source
        self.commit_log = commit_log.view
        self.dead_letters = dead_letters.view
        self.row_bytes_max = commit_log.intake.message_bytes_max
        self.letter_bytes_max = dead_letters.intake.message_bytes_max
        self._ends: dict[Partition, int] = {}

    @property
    def views(self) -> dict[str, View]:
        """The topics it appends to."""
        return {view.topic: view for view in (self.commit_log, self.dead_letters)}

    def end(self, partition: Partition) -> int:
        """An offset that the next record of a partition is not below."""
        if partition not in self._ends:
            self._ends[partition] = self.commit_log.backend.log.bounds(partition).end
        return self._ends[partition]

    def landed(self, ranges: Sequence[Range]) -> None:
        """Note where records have landed."""
        for landed in ranges:
            self._ends[landed.partition] = landed.end

    def letter(self, bad: BadRecord, now_ms: int) -> Record:
        """What the dead letters get: the value as far as it fits, and what was wrong with it."""
        headers = {
            ERROR: error_text(bad.error),
            WHERE: bad.where.encode("utf-8", "backslashreplace"),
            READER: self.source.encode(),
        }
        value = bad.value
        if len(value) + len(header_block(headers)) > self.letter_bytes_max:
            headers[CUT] = str(len(value)).encode()
            value = value[: max(0, self.letter_bytes_max - len(header_block(headers)))]
        return Record(0, now_ms, Mode.COPY, Op.INSERT, bad.namespace.encode(), headers, value)


class Delivery:
    """A batch, encoded, and how much of it there is: rows, their bytes, and what is bad.

    `route` may be called again when a topic was switched; `last` and `last_checksum` speak of the
    last record of the last routing, None and 0 where the batch has none.
    """

    def __init__(self, outlet: Outlet, batch: Batch, now_ms: int) -> None:
        self._outlet = outlet
        self.last: str | None = None
        self.last_checksum = 0
        records, keys, oversize = _divided(batch, outlet.row_bytes_max)
        bad = [*batch.bad, *oversize]
        self._letters = tuple(outlet.letter(each, now_ms) for each in bad)
        self.bad = len(bad)
        self.rows = 0
        self._encoded: Encoded | None = None
        if records is not None and records.num_rows:
            self._encoded, self._keys = encode(records), keys
            self.last_checksum = checksum(records_of(records.slice(records.num_rows - 1))[0])
            self.rows = _row_count(records)
        self.bytes = len(self._encoded.data) if self._encoded is not None else 0

    def route(self) -> tuple[tuple[tuple[Partition, Records], ...], Mapping[str, int]]:
        """The appends to the partitions that take pushes now, and `Transaction.since` for them."""
        appends: list[tuple[Partition, Records]] = []
        since: dict[str, int] = {}
        if self._encoded is not None:
            target = self._outlet.commit_log.target
            appends += self._parts(target, self._encoded)
            since |= target.since
        if self._letters:
            target = self._outlet.dead_letters.target
            by_partition: dict[Partition, list[Record]] = {}
            for letter in self._letters:
                by_partition.setdefault(target.partition_of(letter.key), []).append(letter)
            appends += ((where, tuple(letters)) for where, letters in by_partition.items())
            since |= target.since
        return tuple(appends), since

    def _parts(self, target: Target, encoded: Encoded) -> list[tuple[Partition, Records]]:
        if len(target.partitions) == 1:
            parts = [(target.partitions[0], encoded)]
            final = parts[0]
        else:
            numbers = target.numbers_of(self._keys)
            divided = split(encoded, numbers, len(target.partitions))
            parts = [(target.partitions[number], part) for number, part, _ in divided]
            final = next(part for part in parts if part[0].number == numbers[-1])
        where, part = final
        self.last = str(Position(*where, self._outlet.end(where) + part.count - 1))
        return list(parts)


def _divided(batch: Batch, bytes_max: int) -> tuple[pa.RecordBatch | None, Any, list[BadRecord]]:
    """The records that fit the commit log, what they are routed by, and those that do not."""
    records = batch.records
    if records is None or not records.num_rows:
        return None, None, []
    keys: Any = records["key"] if batch.identities is None else batch.identities
    fits = row_lengths(records["value"]) <= bytes_max
    if fits.all():
        return records, keys, []
    mask = pa.array(fits)
    oversize = [
        BadRecord(
            (record.key or b"").decode("utf-8", "backslashreplace"),
            f"behind position {batch.position!r}",
            f"the row has {len(record.value):,} bytes, the limit is {bytes_max:,}",
            record.value,
        )
        for record in records_of(records.filter(pa.array(~fits)))
    ]
    if batch.identities is not None:
        keys = [identity for identity, fit in zip(keys, fits.tolist(), strict=True) if fit]
        return records.filter(mask), keys, oversize
    kept = records.filter(mask)
    return kept, kept["key"], oversize


def _row_count(records: pa.RecordBatch) -> int:
    """How many records are rows of the source, and do not only tell of it."""
    modes, ops = records["mode"].to_numpy(), records["op"].to_numpy()
    return int(((modes != Mode.COMPLETE) & (ops < Op.COMMAND)).sum())
