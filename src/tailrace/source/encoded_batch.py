"""A batch, encoded for the commit log, the dead letters, and the topics that it pushes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.backend.contract import Records
from tailrace.delivery.dead_letters.letter import unreadable_record
from tailrace.hub.topic import Topic
from tailrace.log.column_codec import row_lengths
from tailrace.log.columns import encode, records_of, split
from tailrace.log.control import control_mask
from tailrace.log.record import Encoded, Record
from tailrace.message import Partition, Position, Range
from tailrace.source.encoded_push import EncodedPush, PushedTopics
from tailrace.source.reader import BadRecord, Batch
from tailrace.source.split_state import checksum
from tailrace.topic.reserved_headers import check_header_names
from tailrace.topic.target import Target
from tailrace.topic.view import View


class SourceOutput:
    """The topics that a source appends to: its commit log, its dead letters, and those that it
    pushes to."""

    def __init__(self, source: str, commit_log: Topic[Any], dead_letters: Topic[Any]) -> None:
        self.source = source
        self.commit_log = commit_log.view
        self.dead_letters = dead_letters.view
        self.row_bytes_max = commit_log.builder.message_bytes_max
        self.letter_bytes_max = dead_letters.builder.message_bytes_max
        self.pushed = PushedTopics(
            self.commit_log.backend,
            commit_log.settings,
            commit_log.clock,
            (commit_log.name, dead_letters.name),
        )
        self._ends: dict[Partition, int] = {}

    @property
    def views(self) -> dict[str, View]:
        """The topics by name: those of the source, and all that were pushed to."""
        own = {view.topic: view for view in (self.commit_log, self.dead_letters)}
        return {**self.pushed.views, **own}

    def end(self, partition: Partition) -> int:
        """Return a lower bound of the offset of a partition's next record."""
        if partition not in self._ends:
            self._ends[partition] = self.commit_log.backend.log.bounds(partition).end
        return self._ends[partition]

    def record_ends(self, ranges: Sequence[Range]) -> None:
        """Record the end offsets after a commit."""
        for each in ranges:
            self._ends[each.partition] = each.end

    def letter(self, bad: BadRecord, now_ms: int) -> Record:
        """Return the dead letter of a bad record, truncated to the size that the topic takes."""
        return unreadable_record(
            self.source,
            bad.namespace,
            bad.where,
            bad.error,
            bad.value,
            now_ms=now_ms,
            bytes_max=self.letter_bytes_max,
        )


class EncodedBatch:
    """A batch, encoded, with the number of its rows, bytes and bad records.

    The messages that it pushes to topics count as rows. Call `route` again if a topic was switched.
    Raises `InvalidValue` if a record has a reserved header, and the errors of `PushedTopics.find`.
    `last` and `last_checksum` are the position and the
    checksum of the last record of the last routing; None and 0 if the batch has no record.
    """

    def __init__(self, output: SourceOutput, batch: Batch, now_ms: int) -> None:
        self._output = output
        self.last: str | None = None
        self.last_checksum = 0
        records, keys, oversize = _divided(batch, output.row_bytes_max)
        self._pushes = [EncodedPush(output.pushed, each, batch.position) for each in batch.pushes]
        bad = [*batch.bad, *oversize]
        bad += (refused for each in self._pushes for refused in each.bad)
        self._letters = tuple(output.letter(each, now_ms) for each in bad)
        self.bad = len(bad)
        self.rows = sum(each.rows for each in self._pushes)
        self._encoded: Encoded | None = None
        if records is not None and records.num_rows:
            self._encoded, self._keys = encode(records), keys
            self.last_checksum = checksum(records_of(records.slice(records.num_rows - 1))[0])
            self.rows += int((~control_mask(records)).sum())
        self.bytes = sum(each.bytes for each in self._pushes)
        self.bytes += len(self._encoded.data) if self._encoded is not None else 0

    def route(self) -> tuple[tuple[tuple[Partition, Records], ...], Mapping[str, int]]:
        """Return the appends to the current partitions, and `Transaction.since` for them."""
        appends: list[tuple[Partition, Records]] = []
        since: dict[str, int] = {}
        if self._encoded is not None:
            target = self._output.commit_log.target
            appends += self._parts(target, self._encoded)
            since |= target.since
        if self._letters:
            target = self._output.dead_letters.target
            by_partition: dict[Partition, list[Record]] = {}
            for letter in self._letters:
                by_partition.setdefault(target.partition_of(letter.key), []).append(letter)
            appends += ((where, tuple(letters)) for where, letters in by_partition.items())
            since |= target.since
        for push in self._pushes:
            parts, topic_since = push.route()
            appends += parts
            since |= topic_since
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
        self.last = str(Position(*where, self._output.end(where) + part.count - 1))
        return list(parts)


def _divided(batch: Batch, bytes_max: int) -> tuple[pa.RecordBatch | None, Any, list[BadRecord]]:
    """Return the records that fit the commit log, their routing keys, and those too large.

    Raises `InvalidValue` if a record has a reserved header.
    """
    records = batch.records
    if records is None or not records.num_rows:
        return None, None, []
    check_header_names(records["headers"])
    keys: Any = records["key"] if batch.identities is None else batch.identities
    fits = row_lengths(records["value"]) <= bytes_max
    if fits.all():
        return records, keys, []
    mask = pa.array(fits)
    oversize = [
        BadRecord(
            (record.key or b"").decode("utf-8", "backslashreplace"),
            f"before position {batch.position!r}",
            f"the row has {len(record.value):,} bytes, the limit is {bytes_max:,}",
            record.value,
        )
        for record in records_of(records.filter(pa.array(~fits)))
    ]
    if isinstance(keys, pa.Array):
        return records.filter(mask), keys.filter(mask), oversize
    keys = [identity for identity, fit in zip(keys, fits.tolist(), strict=True) if fit]
    return records.filter(mask), keys, oversize
