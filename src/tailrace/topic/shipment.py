"""A batch on its way: divided among the partitions of the target, with receipts once landed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.backend.contract import Records, Transaction
from tailrace.log.columns import encode, split
from tailrace.log.record import Encoded, Record
from tailrace.message import Partition, Range, Receipt, Receipts
from tailrace.topic.target import Target
from tailrace.topic.view import View, commit_following

Part: TypeAlias = "tuple[Partition, Records]"
Times: TypeAlias = "list[int] | pa.Array[Any]"
Indices: TypeAlias = "Sequence[slice | list[int] | npt.NDArray[np.int64]]"


class Shipment:
    """Some records of one topic that are committed together.

    `route` divides them and may be called again with another target; `receipts` speaks of the last
    division.
    """

    __slots__ = ("_encoded", "_indices", "_records")

    def __init__(self, records: tuple[Record, ...] | pa.RecordBatch) -> None:
        self._records = records
        self._encoded: Encoded | None = None
        self._indices: Indices = []

    def __len__(self) -> int:
        return len(self._records) if isinstance(self._records, tuple) else self._records.num_rows

    def route(self, target: Target) -> tuple[Part, ...]:
        """The records by partition, each part in the order they came."""
        if len(target.partitions) == 1:
            self._indices = [slice(None)]
            return ((target.partitions[0], self._records),)
        if isinstance(self._records, tuple):
            return self._route_few(self._records, target)
        if self._encoded is None:
            self._encoded = encode(self._records)
        numbers = target.numbers_of(self._records["key"])
        parts = split(self._encoded, numbers, len(target.partitions))
        self._indices = [indices for _, _, indices in parts]
        return tuple((target.partitions[number], rows) for number, rows, _ in parts)

    def _route_few(self, records: tuple[Record, ...], target: Target) -> tuple[Part, ...]:
        unkeyed = target.any_number()
        parts: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            number = target.number_of(record.key) if record.key else unkeyed
            parts.setdefault(number, []).append(index)
        self._indices = list(parts.values())
        return tuple(
            (target.partitions[number], tuple(records[i] for i in indices))
            for number, indices in parts.items()
        )

    def receipts(self, ranges: Sequence[Range]) -> Receipts:
        """The receipts of the records, in their order, from where the parts last routed landed."""
        landing = _Landing(_timestamps(self._records), self._indices, ranges)
        return Receipts(len(self), landing.receipt)


def send(view: View, shipment: Shipment) -> list[Range]:
    """Commit a shipment to wherever pushes go now; where its parts landed."""
    return commit_following(
        view.backend, {view.topic: view}, lambda: Transaction(shipment.route(view.target))
    )


class _Landing:
    """Where each record of a shipment landed, worked out when the first receipt is asked for."""

    __slots__ = ("_indices", "_ranges", "_rows", "_timestamps")

    def __init__(self, timestamps: Times, indices: Indices, ranges: Sequence[Range]) -> None:
        self._timestamps = timestamps
        self._indices = indices
        self._ranges = ranges
        self._rows: list[tuple[int, int, int]] = []

    def receipt(self, index: int) -> Receipt:
        part, offset, timestamp = (self._rows or self._unfold())[index]
        topic, storage, number = self._ranges[part].partition
        return Receipt(topic, storage, number, offset, timestamp)

    def _unfold(self) -> list[tuple[int, int, int]]:
        """The part, offset and timestamp of each record. Threads that do it at once agree."""
        times = self._timestamps
        if not isinstance(times, list):
            times = times.view(pa.int64()).to_numpy().tolist()
        parts, offsets = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
        for part, (indices, landed) in enumerate(zip(self._indices, self._ranges, strict=True)):
            parts[indices] = part
            offsets[indices] = np.arange(landed.start, landed.end)
        self._rows = list(zip(parts.tolist(), offsets.tolist(), times, strict=True))
        return self._rows


def _timestamps(records: tuple[Record, ...] | pa.RecordBatch) -> Times:
    if isinstance(records, tuple):
        return [record.timestamp for record in records]
    return records["timestamp"]
