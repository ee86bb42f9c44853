"""A batch to commit: divided among the partitions of the target, with receipts once stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.backend.contract import Transaction
from tailrace.log.columns import encode, split
from tailrace.log.record import Encoded, Record
from tailrace.message import Partition, Range, Receipt, Receipts
from tailrace.topic.target import Target
from tailrace.topic.view import View, commit_following

Part: TypeAlias = tuple[Partition, Encoded]
Indices: TypeAlias = "Sequence[slice | npt.NDArray[np.int64]]"


class RoutedBatch:
    """Some records of one topic that are committed together, and their keys.

    `route` divides them and may be called again with another target; `receipts` is for the last
    division. `numbers`, if given, are the partitions that the sender chose, null where the key
    decides.
    """

    __slots__ = ("_indices", "_keys", "_numbers", "_records")

    def __init__(
        self,
        records: Encoded,
        keys: Sequence[bytes] | pa.Array[Any],
        numbers: pa.Array[Any] | None = None,
    ) -> None:
        self._records = records
        self._keys = keys
        self._numbers = numbers
        self._indices: Indices = []

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> RoutedBatch:
        """Return a batch of single records."""
        return cls(encode(tuple(records)), [record.key or b"" for record in records])

    def __len__(self) -> int:
        return self._records.count

    @property
    def size_bytes(self) -> int:
        """The size of the records."""
        return len(self._records.data)

    def route(self, target: Target) -> tuple[Part, ...]:
        """Return the records by partition, each part in their order.

        `InvalidValue` if the target has no partition of a number that the sender chose.
        """
        if self._numbers is not None:
            target.check_numbers(self._numbers)
        if len(target.partitions) == 1:
            self._indices = [slice(None)]
            return ((target.partitions[0], self._records),)
        numbers = target.numbers_of(self._keys)
        if self._numbers is not None:
            chosen = self._numbers.cast(pa.int64())
            numbers = chosen.fill_null(0).to_numpy() + np.where(chosen.is_null(), numbers, 0)
        parts = split(self._records, numbers, len(target.partitions))
        self._indices = [indices for _, _, indices in parts]
        return tuple((target.partitions[number], records) for number, records, _ in parts)

    def receipts(self, ranges: Sequence[Range]) -> Receipts:
        """Return the receipts of the records, in their order, given the ranges of the routed
        parts."""
        lazy = _LazyReceipts(self._records, self._indices, ranges)
        return Receipts(len(self), lazy.receipt)


def send(view: View, batch: RoutedBatch) -> list[Range]:
    """Commit a batch to the storage topic that pushes go to now; return the ranges of its parts."""

    def build() -> Transaction:
        target = view.target
        return Transaction(batch.route(target), since=target.since)

    def commit() -> list[Range]:
        return commit_following(view.backend, {view.topic: view}, build)

    return view.pushes.count(len(batch), batch.size_bytes, commit)


class _LazyReceipts:
    """The position of each record of a batch, computed when the first receipt is requested."""

    __slots__ = ("_indices", "_places", "_ranges", "_records")

    def __init__(self, records: Encoded, indices: Indices, ranges: Sequence[Range]) -> None:
        self._records = records
        self._indices = indices
        self._ranges = ranges
        self._places: _RecordPlaces | None = None

    def receipt(self, index: int) -> Receipt:
        places = self._places
        if places is None:
            places = self._places = self._compute()
        topic, storage, number = self._ranges[places.parts[index]].partition
        offset, timestamp = int(places.offsets[index]), int(places.timestamps[index])
        return Receipt(topic, storage, number, offset, timestamp)

    def _compute(self) -> _RecordPlaces:
        timestamps = self._records.timestamps
        offsets, parts = np.empty_like(timestamps), np.empty_like(timestamps)
        for part, (indices, stored) in enumerate(zip(self._indices, self._ranges, strict=True)):
            offsets[indices] = np.arange(stored.start, stored.end)
            parts[indices] = part
        return _RecordPlaces(parts, offsets, timestamps)


class _RecordPlaces(NamedTuple):
    """For each record: its part, its offset and its timestamp."""

    parts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
