"""A batch on its way: divided among the partitions of the target, with receipts once landed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.backend.contract import Transaction
from tailrace.log.columns import split
from tailrace.log.record import Encoded
from tailrace.message import Partition, Range, Receipt, Receipts
from tailrace.topic.target import Target
from tailrace.topic.view import View, commit_following

Part: TypeAlias = tuple[Partition, Encoded]
Indices: TypeAlias = "Sequence[slice | npt.NDArray[np.int64]]"


class Shipment:
    """Some records of one topic that are committed together, and their keys.

    `route` divides them and may be called again with another target; `receipts` speaks of the last
    division.
    """

    __slots__ = ("_indices", "_keys", "_records")

    def __init__(self, records: Encoded, keys: Sequence[bytes] | pa.Array[Any]) -> None:
        self._records = records
        self._keys = keys
        self._indices: Indices = []

    def __len__(self) -> int:
        return self._records.count

    def route(self, target: Target) -> tuple[Part, ...]:
        """The records by partition, each part in the order they came."""
        if len(target.partitions) == 1:
            self._indices = [slice(None)]
            return ((target.partitions[0], self._records),)
        parts = split(self._records, target.numbers_of(self._keys), len(target.partitions))
        self._indices = [indices for _, _, indices in parts]
        return tuple((target.partitions[number], records) for number, records, _ in parts)

    def receipts(self, ranges: Sequence[Range]) -> Receipts:
        """The receipts of the records, in their order, from where the parts last routed landed."""
        landing = _Landing(self._records, self._indices, ranges)
        return Receipts(len(self), landing.receipt)


def send(view: View, shipment: Shipment) -> list[Range]:
    """Commit a shipment to wherever pushes go now; where its parts landed."""

    def build() -> Transaction:
        target = view.target
        return Transaction(shipment.route(target), since=target.since)

    return commit_following(view.backend, {view.topic: view}, build)


class _Landing:
    """Where each record of a shipment landed, worked out when the first receipt is asked for."""

    __slots__ = ("_indices", "_places", "_ranges", "_records")

    def __init__(self, records: Encoded, indices: Indices, ranges: Sequence[Range]) -> None:
        self._records = records
        self._indices = indices
        self._ranges = ranges
        self._places: _Places | None = None

    def receipt(self, index: int) -> Receipt:
        places = self._places
        if places is None:
            places = self._places = self._unfold()
        topic, storage, number = self._ranges[places.parts[index]].partition
        offset, timestamp = int(places.offsets[index]), int(places.timestamps[index])
        return Receipt(topic, storage, number, offset, timestamp)

    def _unfold(self) -> _Places:
        timestamps = self._records.timestamps
        offsets, parts = np.empty_like(timestamps), np.empty_like(timestamps)
        for part, (indices, landed) in enumerate(zip(self._indices, self._ranges, strict=True)):
            offsets[indices] = np.arange(landed.start, landed.end)
            parts[indices] = part
        return _Places(parts, offsets, timestamps)


class _Places(NamedTuple):
    """For each record: in which part it is, at which offset, and its time."""

    parts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
