"""An opened `file` reader: copies the files there are at its start, then follows them and new ones.

    discover ──▶ copy:NAMESPACE ──▶ follow:1:PATH     each file, from the end of its copy
            └──▶ watch ───────────▶ follow:7:PATH     files that appear later, from their start

`discover` finishes at once. It fixes what is copied: the files and sizes at that time. If large
files are divided, other splits copy what `copy:NAMESPACE` then only completes:

    discover ──▶ range:OFFSET:PATH ──▶ copy:NAMESPACE ──▶ follow:1:PATH    each divided file
            ├──▶ whole:NAMESPACE ───────▲           └──▶ follow:2:PATH    each other file

Any task reads ranges. All other splits share the state of their session, so one task reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import msgspec

from tailrace.log.record import Record
from tailrace.readers.file.copy import CopyPosition, FileCopy
from tailrace.readers.file.discovery import discover
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.follow import FileFollower
from tailrace.readers.file.ranges.range_copy import RangeCopy
from tailrace.readers.file.ranges.range_position import RangePosition
from tailrace.readers.file.registry import FileRegistry
from tailrace.readers.file.session_state import FileSessionState
from tailrace.readers.file.watch import FileWatch
from tailrace.source.reader import Batch, Closeable, Split, Until

if TYPE_CHECKING:
    from tailrace.readers.file.reader import FileReader

_DISCOVER: Final = "discover"

_BOUND: Final = "files"
"""The bound of all splits but ranges: they share the state of the session."""


class FileReaderSession(Closeable):
    """An opened `file` reader."""

    def __init__(self, options: FileReader, until: Until) -> None:
        self._state = FileSessionState(options, until)
        self._readings: WeakSet[Iterator[Batch | None]] = WeakSet()
        for file in self._state.poll():
            self._state.format_of(file.path)

    def splits(self) -> tuple[Split, ...]:
        """Return the split that discovers the files."""
        return (Split(_DISCOVER, bound=_BOUND),)

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        """Read a split, by the action in its id. `last` is not used: positions are sufficient."""
        state, action = self._state, split.id.partition(":")[0]
        if action == "range":
            copied = None if position is None else msgspec.convert(position, RangePosition)
            return RangeCopy(state, split, copied).batches()
        if not self._readings:
            # The splits that share the state came from another task, or are the first ones.
            state.reset()
        reading: Iterator[Batch | None]
        match action:
            case "discover":
                reading = _only(discover(state, split))
            case "copy" | "whole":
                reading = self._copied(split, position, followed)
            case "watch":
                registry = None if position is None else msgspec.convert(position, FileRegistry)
                reading = FileWatch(state, split, registry).batches()
            case _:
                begun = None if position is None else msgspec.convert(position, FilePosition)
                reading = FileFollower(state, split, begun).batches()
        self._readings.add(reading)
        return reading

    def close(self) -> None:
        """Close all files."""
        self._state.close()

    def _copied(self, split: Split, position: Any, followed: Mapping[str, Any]) -> Iterator[Batch]:
        begun = CopyPosition() if position is None else msgspec.convert(position, CopyPosition)
        copy = FileCopy(self._state, split, begun)
        yield from copy.batches()
        yield copy.complete(followed) if split.id.startswith("copy:") else copy.end()


def _only(batch: Batch) -> Iterator[Batch]:
    yield batch
