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
        for file in self._state.poll():
            self._state.format_of(file.path)

    def splits(self) -> tuple[Split, ...]:
        """Return the split that discovers the files."""
        return (Split(_DISCOVER, bound=_BOUND),)

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        """Read a split, by the action in its id. `last` is not used: positions are sufficient."""
        state = self._state
        match _action(split):
            case "discover":
                return iter((discover(state, split),))
            case "range":
                copied = None if position is None else msgspec.convert(position, RangePosition)
                return RangeCopy(state, split, copied).batches()
            case "copy" | "whole":
                return self._copied(split, position, followed)
            case "watch":
                registry = None if position is None else msgspec.convert(position, FileRegistry)
                return FileWatch(state, split, registry).batches()
            case _:
                begun = None if position is None else msgspec.convert(position, FilePosition)
                return FileFollower(state, split, begun).batches()

    def close(self) -> None:
        """Close all files."""
        self._state.close()

    def _copied(self, split: Split, position: Any, followed: Mapping[str, Any]) -> Iterator[Batch]:
        begun = CopyPosition() if position is None else msgspec.convert(position, CopyPosition)
        copy = FileCopy(self._state, split, begun)
        yield from copy.batches()
        yield copy.complete(followed) if _action(split) == "copy" else copy.end()


def _action(split: Split) -> str:
    return split.id.partition(":")[0]
