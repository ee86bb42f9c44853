"""The splits of a `file` reader, each read in a session of its own, as by tasks in processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tailrace import readers
from tailrace.log.columns import records_of
from tailrace.message import Mode
from tailrace.readers.file.file_position import FilePosition
from tailrace.source.reader import BadRecord, Batch, Split, Until

IDLE_MAX = 10
"""Polls in a row that may find nothing."""


class ReadSplits:
    """The splits that were reported, their positions, and everything that was read of them."""

    def __init__(self, path: Path | str, until: Until = Until.STOPPED, **options: Any) -> None:
        self.reader = readers.file(str(path), **{"poll": "1us"} | options)
        self._until = until
        self._last = ""
        self.splits: dict[str, Split] = {}
        self.positions: dict[str, Any] = {}
        self.finished: set[str] = set()
        self.values: list[bytes] = []
        self.completed: list[bytes] = []
        self.bad: list[BadRecord] = []
        with self.reader.open(until) as session:
            self.splits |= {split.id: split for split in session.splits()}
        self.read("discover")

    @property
    def ranges(self) -> list[str]:
        """The ids of all range splits, in the order in which they were reported."""
        return [each for each in self.splits if each.startswith("range:")]

    def steps(self, split_id: str) -> Iterator[Batch]:
        """Read one split from its stored position, in a session of its own; store each batch."""
        split = self.splits[split_id]
        assert set(split.follows) <= self.finished
        followed = {each: self.positions[each] for each in split.follows}
        idle = 0
        with self.reader.open(self._until) as session:
            for batch in session.read(split, self.positions.get(split_id), None, followed):
                idle = idle + 1 if batch is None else 0
                assert idle < IDLE_MAX
                if batch is not None:
                    self._store(split_id, batch)
                    yield batch

    def read(self, *split_ids: str) -> None:
        """Read some splits to their ends."""
        for split_id in split_ids:
            for _ in self.steps(split_id):
                pass
            assert split_id in self.finished

    def read_copies(self) -> None:
        """Read all splits that copy, in the order in which they were reported."""
        names = ("range", "whole", "copy")
        copies = [each for each in self.splits if each.partition(":")[0] in names]
        self.read(*(each for each in copies if each not in self.finished))

    def rows(self) -> list[Any]:
        """Return the field `n` of every row."""
        return [msgspec.json.decode(value)["n"] for value in self.values]

    def follow_position(self, split_id: str) -> FilePosition:
        """Return the position at which a split begins to follow a file."""
        return msgspec.convert(self.splits[split_id].data["place"], FilePosition)

    def _store(self, split_id: str, batch: Batch) -> None:
        assert split_id not in self.finished
        stored = msgspec.json.encode(batch.position)
        self.positions[split_id] = msgspec.json.decode(stored)
        for child in batch.children:
            assert child.id not in self.splits
            self.splits[child.id] = msgspec.json.decode(msgspec.json.encode(child), type=Split)
        for record in () if batch.records is None else records_of(batch.records):
            kept = self.completed if record.mode == Mode.COMPLETE else self.values
            kept.append(bytes(record.value))
        self.bad += batch.bad
        if batch.finished:
            self.finished.add(split_id)
