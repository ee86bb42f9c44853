"""A system that a simulated reader reads: splits with batches, written down before it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.source.reader import Split


class ScriptedBatch(NamedTuple):
    """A batch: its rows and children, and the time from which it can be read.

    Before that time, a reader that `ends` ends without being finished; any other yields None.
    """

    rows: int = 1
    children: tuple[Split, ...] = ()
    at_s: float = 0.0
    ends: bool = False
    finished: bool = False


class SourceScript:
    """The splits of a system, with their batches. The `first` ones are known from the start."""

    def __init__(
        self, first: Iterable[Split], batches: Mapping[str, tuple[ScriptedBatch, ...]]
    ) -> None:
        self.first = tuple(first)
        self.batches = dict(batches)
        self.splits = {split.id: split for split in self.first}
        for each in self.batches.values():
            for batch in each:
                self.splits.update((child.id, child) for child in batch.children)
        followers: defaultdict[str, set[str]] = defaultdict(set)
        for split in self.splits.values():
            for parent in split.follows:
                followers[parent].add(split.id)
        self.followers: Mapping[str, set[str]] = followers
        self._check()

    def rows(self, split_id: str, number: int) -> list[bytes]:
        """Return the values of the rows of a batch."""
        before = sum(batch.rows for batch in self.batches[split_id][:number])
        count = self.batches[split_id][number].rows
        return [f"{split_id}:{row}".encode() for row in range(before, before + count)]

    def last_row(self, split_id: str, number: int) -> bytes | None:
        """Return the value of the last row of the first `number` batches."""
        rows = sum(batch.rows for batch in self.batches[split_id][:number])
        return f"{split_id}:{rows - 1}".encode() if rows else None

    def finishes(self, split_id: str) -> bool:
        """True if a split is finished after its last batch."""
        return bool(self.batches[split_id]) and self.batches[split_id][-1].finished

    def readable(self) -> set[str]:
        """Return the splits that are known and may start once everything was read that can be."""
        readable: set[str] = set()
        while True:
            known = {split.id for split in self.first} | {
                child.id
                for each in readable
                for batch in self.batches[each]
                for child in batch.children
            }
            finished = {each for each in readable if self.finishes(each)}
            more = {each for each in known if finished.issuperset(self.splits[each].follows)}
            if more == readable:
                return readable
            readable = more

    def _check(self) -> None:
        """Check that the script keeps the contract of `Split`."""
        reporters: defaultdict[str, set[str]] = defaultdict(set)
        for split_id, batches in self.batches.items():
            for batch in batches:
                for child in batch.children:
                    reporters[child.id].add(split_id)
                    assert self.splits[child.id] == child
                    assert child.bound in (None, self.splits[split_id].bound)
        assert self.batches.keys() == self.splits.keys()
        for split in self.splits.values():
            for parent in split.follows:
                assert self.splits[parent].kept or parent in reporters[split.id], split
