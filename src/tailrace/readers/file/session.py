"""An opened `file` reader: copies the files there are at its start, then follows them and new ones.

    discover ──▶ copy:NAMESPACE ──▶ follow:1:PATH     each file, from the end of its copy
            └──▶ watch ───────────▶ follow:7:PATH     files that appear later, from their start

`discover` finishes at once. It fixes what is copied: the files and sizes at that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.log.record import Record
from tailrace.readers.file.copy import CopyData, CopyFile, CopyPosition, FileCopy
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.follow import FileFollower
from tailrace.readers.file.registry import FileRegistry, RegistryUpdater
from tailrace.readers.file.session_state import FileSessionState
from tailrace.readers.file.watch import WATCH, FileWatch, WatchData
from tailrace.source.reader import Batch, Closeable, Split, Until

if TYPE_CHECKING:
    from tailrace.readers.file.reader import FileReader

_DISCOVER = "discover"


class FileReaderSession(Closeable):
    """An opened `file` reader."""

    def __init__(self, options: FileReader, until: Until) -> None:
        self._state = FileSessionState(options, until)
        for file in self._state.poll():
            self._state.format_of(file.path)

    def splits(self) -> tuple[Split, ...]:
        """Return the split that discovers the files."""
        return (Split(_DISCOVER),)

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        """Read a split, by the action in its id. `last` is not used: positions are sufficient."""
        state = self._state
        match split.id.partition(":")[0]:
            case "discover":
                return iter((self._discovered(),))
            case "copy":
                begun = CopyPosition() if position is None else position
                return FileCopy(state, split, msgspec.convert(begun, CopyPosition)).batches()
            case "watch":
                registry = None if position is None else msgspec.convert(position, FileRegistry)
                return FileWatch(state, split, registry).batches()
            case _:
                begun = None if position is None else msgspec.convert(position, FilePosition)
                return FileFollower(state, split, begun).batches()

    def close(self) -> None:
        """Close all files."""
        self._state.close()

    def _discovered(self) -> Batch:
        """Return the splits of a new source: a copy for each namespace, and the watch."""
        state = self._state
        updater = RegistryUpdater(FileRegistry(), state.read_start)
        registry, new = updater.update(state.poll(), lambda _: True)
        by_namespace: dict[str, list[CopyFile]] = {}
        for split, file in new:
            start = FilePosition(file.path, file.device, file.inode)
            copied = CopyFile(start, file.size, split)
            by_namespace.setdefault(state.namespace_of(file.path), []).append(copied)
        copies = (
            Split(
                f"copy:{namespace}",
                msgspec.to_builtins(CopyData(namespace, tuple(files))),
                kept=True,  # new files follow it, however late they appear
            )
            for namespace, files in by_namespace.items()
        )
        watch = Split(WATCH, msgspec.to_builtins(WatchData(registry, tuple(by_namespace))))
        return Batch(None, None, children=(*copies, watch), finished=True)
