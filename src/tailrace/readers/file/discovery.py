"""The discovery: decides which files are copied, which of them in ranges, and by which splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tailrace.readers.file.copy import CopyData, CopyFile, copy_id, whole_id
from tailrace.readers.file.file_position import FilePosition, Fingerprint
from tailrace.readers.file.files import FileInfo, UnreadableFile
from tailrace.readers.file.formats.parquet import row_groups
from tailrace.readers.file.ranges.division import FileRange, byte_ranges, row_ranges
from tailrace.readers.file.ranges.range_position import DividedFile, RangeData, range_id
from tailrace.readers.file.registry import FileRegistry, RegistryUpdater
from tailrace.readers.file.row_estimate import estimate_rows
from tailrace.readers.file.session_state import FileSessionState
from tailrace.readers.file.watch import WATCH, WatchData
from tailrace.source.reader import Batch, Split


def discover(state: FileSessionState, split: Split) -> Batch:
    """Return the splits of a new source: those that copy each namespace, and the watch.

    It fixes what is copied: the files and their sizes at this time.
    """
    updater = RegistryUpdater(FileRegistry(), state.read_start)
    registry, new = updater.update(state.poll(), lambda _: True)
    by_namespace: defaultdict[str, list[_FoundFile]] = defaultdict(list)
    for follow, file in new:
        known = registry.known(file)
        head = Fingerprint() if known is None else known.head
        found = _FoundFile(file, head, follow, _divide(state, file))
        by_namespace[state.namespace_of(file.path)].append(found)
    children: list[Split] = []
    waiting: dict[str, FilePosition] = {}
    for namespace, files in by_namespace.items():
        copies = _NamespaceCopies(state, split.bound, namespace, files)
        children += copies.splits()
        if copies.divided:
            waiting |= {file.split: file.end for file in files}
    registry = msgspec.structs.replace(registry, waiting=waiting)
    data = msgspec.to_builtins(WatchData(registry, tuple(by_namespace)))
    children.append(Split(WATCH, data, bound=split.bound))
    return Batch(None, None, children=tuple(children), finished=True)


def _divide(state: FileSessionState, file: FileInfo) -> list[FileRange]:
    """Return the ranges of a file; none if it is copied whole."""
    range_bytes = state.options.range_bytes
    if range_bytes is None or file.size <= range_bytes:
        return []
    match state.format_name(file.path):
        case "jsonl" if state.compression_of(file.path) == "none":
            return byte_ranges(file.size, range_bytes)
        case "parquet":
            return _divide_rows(state, file, range_bytes)
    return []


def _divide_rows(state: FileSessionState, file: FileInfo, range_bytes: int) -> list[FileRange]:
    opened = state.open(file.path)
    if opened is None:
        return []
    try:
        # The rows of another edition of the file are not divided in the same way.
        return row_ranges(row_groups(opened), range_bytes) if opened.info(file.path) == file else []
    except UnreadableFile:
        return []
    finally:
        opened.close()


@dataclass(frozen=True, slots=True)
class _FoundFile:
    """A file, its first bytes, the split that will follow it, and its ranges if it is divided."""

    info: FileInfo
    head: Fingerprint
    split: str
    ranges: Sequence[FileRange]

    @property
    def start(self) -> FilePosition:
        return FilePosition(self.info.path, self.info.device, self.info.inode)

    @property
    def end(self) -> FilePosition:
        """The end of the file, as a position whose checksum is not known."""
        return msgspec.structs.replace(self.start, offset=self.info.size, head=self.head)


class _NamespaceCopies:
    """The splits that copy the files of a namespace."""

    def __init__(
        self,
        state: FileSessionState,
        bound: str | None,
        namespace: str,
        files: Sequence[_FoundFile],
    ) -> None:
        self._state = state
        self._bound = bound
        self._namespace = namespace
        self._whole = [file for file in files if not file.ranges]
        self.divided = [file for file in files if file.ranges]

    def splits(self) -> list[Split]:
        """Return the splits; the last one completes the copy."""
        copied = self._copied_whole()
        if not self.divided:
            return [copied]
        others = [split for file in self.divided for split in self._ranges(file)]
        if self._whole:
            whole = msgspec.structs.replace(copied, id=whole_id(self._namespace), kept=False)
            others.append(whole)
        data = CopyData(self._namespace, (), tuple(map(self._divided, self.divided)))
        completed = msgspec.structs.replace(
            copied,
            data=msgspec.to_builtins(data),
            follows=tuple(split.id for split in others),
            rows_expected=0,
        )
        return [*others, completed]

    def _copied_whole(self) -> Split:
        files = tuple(CopyFile(file.start, file.info.size, file.split) for file in self._whole)
        return Split(
            copy_id(self._namespace),
            msgspec.to_builtins(CopyData(self._namespace, files)),
            bound=self._bound,
            kept=True,  # new files follow it, however late they appear
            namespace=self._namespace,
            rows_expected=estimate_rows(self._state, [file.info for file in self._whole]),
        )

    def _ranges(self, file: _FoundFile) -> list[Split]:
        path, size, end = file.info.path, file.info.size, file.ranges[-1].end
        rows = estimate_rows(self._state, [file.info]) or 0
        start = self._start(file)
        return [
            Split(
                range_id(path, each.start),
                msgspec.to_builtins(RangeData(self._namespace, start, each, size)),
                namespace=self._namespace,
                rows_expected=round(rows * (each.end - each.start) / end),
            )
            for each in file.ranges
        ]

    def _divided(self, file: _FoundFile) -> DividedFile:
        starts = tuple(each.start for each in file.ranges)
        return DividedFile(self._start(file), starts, file.split)

    def _start(self, file: _FoundFile) -> FilePosition:
        """Return the start of a divided file, with what tells whether the file was rewritten."""
        if self._state.format_of(file.info.path).grows:
            return msgspec.structs.replace(file.start, head=file.head)
        size, modified_ns = file.info.size, file.info.modified_ns
        return msgspec.structs.replace(file.start, size=size, modified_ns=modified_ns)
