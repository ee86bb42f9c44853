"""An opened `file` reader: what there is to begin with is copied, what comes later followed.

    discover ──▶ copy:NAMESPACE ──▶ follow:1:PATH     each file behind what was copied of it
            └──▶ watch ───────────▶ follow:7:PATH     files that appear later, from their beginning

`discover` finishes at once and fixes what is copied: exactly the files and sizes there are then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.log.record import Record
from tailrace.readers.copying import Copy, CopyData, CopyFile, CopyPosition
from tailrace.readers.file_source import FileSource
from tailrace.readers.following import Follower
from tailrace.readers.place import Place
from tailrace.readers.registry import Census, Registry
from tailrace.readers.watching import WATCH, Watch, WatchData
from tailrace.source.reader import Batch, Opened, Split, Until

if TYPE_CHECKING:
    from tailrace.readers.file import FileReader

_DISCOVER = "discover"


class FileReading(Opened):
    """An opened `file` reader."""

    def __init__(self, options: FileReader, until: Until) -> None:
        self._source = FileSource(options, until)
        for file in self._source.look():
            self._source.format_of(file.path)

    def splits(self) -> tuple[Split, ...]:
        """The one that finds out what there is."""
        return (Split(_DISCOVER),)

    def read(self, split: Split, position: Any, last: Record | None) -> Iterator[Batch | None]:
        """Read a split by what it does. Files say themselves where to go on, so `last` is of no
        use."""
        source = self._source
        match split.id.partition(":")[0]:
            case "discover":
                return iter((self._discovered(),))
            case "copy":
                begun = CopyPosition() if position is None else position
                return Copy(source, split, msgspec.convert(begun, CopyPosition)).batches()
            case "watch":
                known = None if position is None else msgspec.convert(position, Registry)
                return Watch(source, split, known).batches()
            case _:
                place = None if position is None else msgspec.convert(position, Place)
                return Follower(source, split, place).batches()

    def close(self) -> None:
        """Close all files."""
        self._source.close()

    def _discovered(self) -> Batch:
        """What there is now: a copy for each namespace, and the watching for what comes later."""
        source = self._source
        census = Census(Registry(), source.beginning_of)
        registry, new = census.take(source.look(), lambda _: True)
        by_namespace: dict[str, list[CopyFile]] = {}
        for split, file in new:
            place = Place(file.path, file.device, file.inode)
            copied = CopyFile(place, file.size, split)
            by_namespace.setdefault(source.namespace_of(file.path), []).append(copied)
        copies = (
            Split(f"copy:{namespace}", msgspec.to_builtins(CopyData(namespace, tuple(files))))
            for namespace, files in by_namespace.items()
        )
        watch = Split(WATCH, msgspec.to_builtins(WatchData(registry, tuple(by_namespace))))
        return Batch(None, None, children=(*copies, watch), finished=True)
