"""A consumer's progress in one partition, and the ledger that stores it.

Progress is a low-water mark, below which everything is acknowledged, plus the ranges acknowledged
above it. Every offset that is in neither must be delivered again, holes included.

It is stored as entries of the table ``ledger/CONSUMER``::

    orders/1.7/mark              the mark, 8 bytes, big-endian
    orders/1.7/block/NNNNNNNN    the ranges that start in block N of 65,536 offsets (8 bytes,
                                 big-endian): msgpack, [gap, length, gap, length, …] from its base

A consumer may consist of *units* that have progresses of their own in the same partition. The
entries of a unit have the prefix ``@UNIT/``.

A range belongs to the block it starts in, even if it ends in another, so a range over a wide gap is
one small entry. A write has only the blocks that changed, so a parked backlog is not rewritten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Table, TableKey
from tailrace.backend.table_scan import scan_prefix
from tailrace.errors import InvalidValue
from tailrace.message import Partition

_BLOCK_BITS: Final = 16
_MARK: Final = b"mark"
_BLOCK: Final = b"block/"
_ranges_decoder = msgspec.msgpack.Decoder(list[int])


class _RangeBlock(NamedTuple):
    """The ranges that start in one block: sorted, with a gap between each two, at most 32,768."""

    starts: list[int]
    ends: list[int]


class Progress:
    """The acknowledged offsets of one consumer in one partition. They only grow, except by `reset`.

    Not safe for several threads at once. One write at a time: `writes`, commit them, `saved`. Until
    `saved` is called, `writes` returns the same keys again, with their current values.
    """

    def __init__(
        self, consumer: str, partition: Partition, mark: int = 0, *, unit: str = ""
    ) -> None:
        self.mark = mark
        """All offsets below it are acknowledged."""
        self._table = ledger_table(consumer)
        self._prefix = f"@{unit}/{partition}/".encode() if unit else f"{partition}/".encode()
        self._blocks: dict[int, _RangeBlock] = {}
        self._numbers: list[int] = []  # of the blocks that hold ranges, sorted
        self._touched: set[int] = set()
        self._written: set[int] = set()
        self._mark_saved: int | None = None  # None while the ledger may hold another mark
        self._mark_written = mark

    @classmethod
    def load(cls, table: Table, consumer: str, partition: Partition) -> Progress:
        """Load the progress that a ledger stores; an unknown consumer starts at 0."""
        progress = cls(consumer, partition)
        start = len(progress._prefix)
        held = scan_prefix(table, progress._table, progress._prefix)
        progress._restore([(key[start:], value) for key, value in held])
        return progress

    def _restore(self, entries: list[tuple[bytes, bytes]]) -> None:
        for key, value in entries:
            if key == _MARK:
                self.mark = int.from_bytes(value)
                self._mark_saved = self._mark_written = self.mark
        for key, value in entries:
            if key == _MARK:
                continue
            at = int.from_bytes(key.removeprefix(_BLOCK)) << _BLOCK_BITS
            steps = iter(_ranges_decoder.decode(value))
            for gap, length in zip(steps, steps, strict=True):
                self.ack(at + gap, at + gap + length)
                at += gap + length
        self._touched.clear()

    @property
    def highest(self) -> int:
        """The highest acknowledged offset; -1 if there is none."""
        return (self._blocks[self._numbers[-1]].ends[-1] if self._numbers else self.mark) - 1

    def acked(self, offset: int) -> bool:
        """True if the offset is acknowledged."""
        return offset < self.mark or self._range_before(offset)[1] > offset

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges acknowledged above the mark, as first offset and first offset after."""
        for number in self._numbers:
            yield from zip(*self._blocks[number], strict=True)

    def holes(self, end: int, start: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the ranges from `start` up to, not including, `end` that are not acknowledged,
        lowest first."""
        at = max(self.mark, start)
        # A range that covers `start` begins in its block, or is the last of the one before.
        block = max(0, bisect_right(self._numbers, start >> _BLOCK_BITS) - 2)
        for number in self._numbers[block:]:
            for first, after in zip(*self._blocks[number], strict=True):
                if first >= end:
                    break
                if first > at:
                    yield at, first
                at = max(at, after)
        if at < end:
            yield at, end

    def ack(self, start: int, end: int) -> None:
        """Acknowledge all offsets from `start` up to, not including, `end`, existing or not."""
        if not 0 <= start <= end:
            raise InvalidValue("range", (start, end), "0 <= start <= end")
        start = max(start, self.mark)
        first, after = self._range_before(start)
        if start >= end or after >= end:
            return
        if after >= start:
            start = first
        end = self._absorb(start, end)
        if start <= self.mark:
            self.mark = end
        else:
            self._insert(start, end)

    def merge(self, other: Progress) -> None:
        """Acknowledge every offset that the other progress has acknowledged."""
        self.ack(0, other.mark)
        for start, end in other.ranges():
            self.ack(start, end)

    def copy(self) -> Progress:
        """Return a progress that is equal now, and independent. No write may be under way."""
        twin = Progress.__new__(Progress)
        twin.__dict__.update(self.__dict__)
        twin._blocks = {
            number: _RangeBlock(list(block.starts), list(block.ends))
            for number, block in self._blocks.items()
        }
        twin._numbers = list(self._numbers)
        twin._touched, twin._written = set(self._touched), set(self._written)
        return twin

    def reset(self, to: int) -> None:
        """Start over at `to`, in either direction: all below it is acknowledged, nothing else is.

        For operators only, who raise the owner's fence before they write it.
        """
        if to < 0:
            raise InvalidValue("offset", to, "0 or more")
        self._touched.update(self._numbers)
        self._blocks.clear()
        self._numbers.clear()
        self.mark = to

    def writes(self) -> dict[TableKey, bytes | None]:
        """Return the entries that changed since the last `saved`; None removes an entry."""
        self._written |= self._touched
        self._touched.clear()
        entries = {self._key(_BLOCK, number): self._encoded(number) for number in self._written}
        if self.mark != self._mark_saved:
            entries[self._key(_MARK)] = self.mark.to_bytes(8)
            self._mark_saved, self._mark_written = None, self.mark
        return entries

    def saved(self) -> None:
        """Record that the last result of `writes` is committed."""
        self._written.clear()
        self._mark_saved = self._mark_written

    def _range_before(self, offset: int) -> tuple[int, int]:
        """Return the last range that starts at or before an offset, or the one below the mark."""
        index = bisect_right(self._numbers, offset >> _BLOCK_BITS) - 1
        if index >= 0 and self._blocks[self._numbers[index]].starts[0] > offset:
            index -= 1
        if index < 0:
            return 0, self.mark
        starts, ends = self._blocks[self._numbers[index]]
        at = bisect_right(starts, offset) - 1
        return starts[at], ends[at]

    def _absorb(self, start: int, end: int) -> int:
        """Remove the ranges that start within or right after this one; return the end of the
        union."""
        low = bisect_left(self._numbers, start >> _BLOCK_BITS)
        high = bisect_right(self._numbers, end >> _BLOCK_BITS)
        emptied = []
        union_end = end
        for number in self._numbers[low:high]:
            starts, ends = self._blocks[number]
            one, other = bisect_left(starts, start), bisect_right(starts, end)
            if one == other:
                continue
            union_end = max(union_end, ends[other - 1])
            del starts[one:other], ends[one:other]
            self._touched.add(number)
            if not starts:
                emptied.append(number)
        for number in emptied:
            del self._blocks[number]
        if emptied:
            self._numbers[low:high] = [n for n in self._numbers[low:high] if n in self._blocks]
        return union_end

    def _insert(self, start: int, end: int) -> None:
        number = start >> _BLOCK_BITS
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _RangeBlock([], [])
            insort(self._numbers, number)
        at = bisect_left(block.starts, start)
        block.starts.insert(at, start)
        block.ends.insert(at, end)
        self._touched.add(number)

    def _encoded(self, number: int) -> bytes | None:
        if number not in self._blocks:
            return None
        at = number << _BLOCK_BITS
        steps: list[int] = []
        for start, end in zip(*self._blocks[number], strict=True):
            steps += (start - at, end - start)
            at = end
        return msgspec.msgpack.encode(steps)

    def _key(self, name: bytes, number: int | None = None) -> TableKey:
        suffix = b"" if number is None else number.to_bytes(8)
        return TableKey(self._table, self._prefix + name + suffix)


def load_storage(table: Table, consumer: str, topic: str, storage: int) -> dict[int, Progress]:
    """Load a consumer's progress in the partitions of a storage topic, by number; partitions that
    the ledger does not know are left out."""
    prefix = f"{topic}/{storage}.".encode()
    by_number: defaultdict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    for key, value in scan_prefix(table, ledger_table(consumer), prefix):
        number, _, name = key[len(prefix) :].partition(b"/")
        by_number[int(number)].append((name, value))
    found = {}
    for at, held in by_number.items():
        progress = found[at] = Progress(consumer, Partition(topic, storage, at))
        progress._restore(held)
    return found


def load_units(table: Table, consumer: str, units: str) -> dict[str, dict[Partition, Progress]]:
    """Load the progresses of the units of a consumer whose names begin so: ``1.``, or ``1.3/`` for
    that unit alone."""
    by_unit: dict[str, dict[Partition, list[tuple[bytes, bytes]]]] = {}
    for key, value in scan_prefix(table, ledger_table(consumer), f"@{units}".encode()):
        unit, topic, number, name = key[1:].split(b"/", 3)
        partition = Partition.parse(f"{topic.decode()}/{number.decode()}")
        by_unit.setdefault(unit.decode(), {}).setdefault(partition, []).append((name, value))
    found: dict[str, dict[Partition, Progress]] = {}
    for each, partitions in by_unit.items():
        for partition, held in partitions.items():
            progress = Progress(consumer, partition, unit=each)
            progress._restore(held)
            found.setdefault(each, {})[partition] = progress
    return found


def ledger_keys(table: Table, consumer: str, topic: str) -> list[TableKey]:
    """Return the keys of a consumer's ledger for a topic, and for earlier topics of its name."""
    name = ledger_table(consumer)
    return [TableKey(name, key) for key, _ in scan_prefix(table, name, f"{topic}/".encode())]


def ledger_table(consumer: str) -> str:
    """Return the table of a consumer's ledger."""
    return f"ledger/{consumer}"
