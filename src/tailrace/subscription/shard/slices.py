"""Slices: consecutive messages of a partition that a handler of batches is called with at once.

A message in the lane of its key costs a turn, a permit and an outcome of its own. A slice has one
of each for all its messages, and the messages of one key are in it in their order.

The slices of a partition are the entries of one lane: they are called one after the other. When the
turn of a slice comes, all earlier messages of the partition are acknowledged or in the lanes of
their keys. If a key of the slice is there too, or lags in RQ or DLQ, or if one of its messages has
attempts, the slice is *taken apart*: its messages go to the lanes of their keys. The same happens
if its call fails. Keys of partitions that are open at the same time differ, so slices of several
partitions are called at a time.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from tailrace.delivery.fetched import FetchedBatch


class BatchSlice(NamedTuple):
    """Some messages of a batch, in order. All others between the first and the last one are
    acknowledged, or will be by the next commit."""

    batch: FetchedBatch
    rows: Sequence[int]

    @property
    def first(self) -> int:
        """The first offset."""
        return self.batch.offsets[self.rows[0]]

    @property
    def after(self) -> int:
        """The offset after the last one."""
        return self.batch.offsets[self.rows[-1]] + 1

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages."""
        offsets, rows = self.batch.offsets, self.rows
        if rows[-1] - rows[0] == len(rows) - 1:
            return offsets[rows[0] : rows[-1] + 1]
        return [offsets[row] for row in rows]

    @property
    def keys(self) -> Iterator[bytes | None]:
        """The keys of the messages."""
        keys = self.batch.keys
        return (keys[row] for row in self.rows)

    @property
    def size_bytes(self) -> int:
        """The approximate size of the messages."""
        return len(self.rows) * self.batch.record_bytes

    def has_key_in(self, *lanes: Container[object]) -> bool:
        """True if one of these has a key of the messages."""
        return any(key in each for key in {*self.keys} - {None, b""} for each in lanes)

    def overlaps(self, offsets: frozenset[int]) -> bool:
        """True if one of these offsets is that of a message."""
        return bool(offsets) and not offsets.isdisjoint(self.offsets)


def sliced(batch: FetchedBatch, rows: Sequence[int], most: int) -> Iterator[BatchSlice]:
    """Yield slices with these rows of a batch, of about the same size and at most so many
    messages."""
    if not rows:
        return
    count = -(-len(rows) // most)
    size = -(-len(rows) // count)
    for start in range(0, len(rows), size):
        yield BatchSlice(batch, rows[start : start + size])


class Slices:
    """The slices of a shard that are not resolved, by id. For one thread at a time."""

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.in_flight = 0
        """The number of slices whose turn has come."""
        self._by_id: dict[int, BatchSlice] = {}

    def add(self, id: int, part: BatchSlice) -> None:
        """Add a slice under the id of its first message."""
        self._by_id[id] = part
        self.messages += len(part.rows)
        self.size_bytes += part.size_bytes

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, id: int) -> BatchSlice:
        return self._by_id[id]

    def remove(self, id: int) -> BatchSlice:
        """Remove a slice that is resolved or taken apart."""
        part = self._by_id.pop(id)
        self.messages -= len(part.rows)
        self.size_bytes -= part.size_bytes
        return part
