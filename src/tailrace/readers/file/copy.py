"""The copy splits of a namespace: its whole files, and the end of its copy.

Files are read up to their sizes at the discovery. If a namespace has files that are copied in
ranges, one split copies its other files, and another follows that one and all ranges. If it has
none, one split does both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from tailrace.message import Mode, Op
from tailrace.readers.file.copied_file import CopiedFile
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import UnreadableFile
from tailrace.readers.file.follow import FollowData
from tailrace.readers.file.formats.columns import change_records, documents
from tailrace.readers.file.formats.format import FileChunk, unreadable_chunk
from tailrace.readers.file.formats.lines import CHUNK_BYTES
from tailrace.readers.file.ranges.range_position import (
    DividedFile,
    RangePosition,
    whole_position,
)
from tailrace.readers.file.rewrite_check import is_intact
from tailrace.readers.file.session_state import FileSessionState
from tailrace.source.reader import Batch, Split

_CHUNKS_MAX: Final = 1000
_encode = msgspec.json.Encoder().encode


class CopyFile(msgspec.Struct, frozen=True):
    """A file to copy: its start, its size at the discovery, and the split that will follow it."""

    position: FilePosition = msgspec.field(name="place")
    size: int
    split: str


class CopyData(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a copy split: the namespace, and its files to copy.

    `divided` are those that are copied in ranges, by other splits.
    """

    namespace: str
    files: tuple[CopyFile, ...]
    divided: tuple[DividedFile, ...] = ()


class CopyPosition(msgspec.Struct, frozen=True):
    """How far a copy is: `number` files are complete, and the next one up to `file_position`."""

    number: int = 0
    file_position: FilePosition | None = msgspec.field(default=None, name="place")
    rows: int = 0


def copy_id(namespace: str) -> str:
    """Return the id of the split that completes the copy of a namespace."""
    return f"copy:{namespace}"


def whole_id(namespace: str) -> str:
    """Return the id of the split that copies the whole files beside those copied in ranges."""
    return f"whole:{namespace}"


class FileCopy:
    """A copy split. Small files share a batch. Each file is followed from the end of its copy."""

    def __init__(self, state: FileSessionState, split: Split, position: CopyPosition) -> None:
        self._state = state
        self._split = split
        self._data = msgspec.convert(split.data, CopyData)
        self._position = position
        self._chunks: list[FileChunk] = []
        self._children: list[Split] = []
        self._chunk_bytes = 0

    def batches(self) -> Iterator[Batch]:
        """Yield the rest of the files."""
        data = self._data
        for file in data.files[self._position.number :]:
            start = self._position.file_position or file.position
            copied = CopiedFile(self._state, start, file.split)
            self._state.followed[file.split] = copied
            for chunk in self._read(file):
                self._add(chunk)
                copied.position = chunk.position
                if self._chunk_bytes >= CHUNK_BYTES or len(self._chunks) >= _CHUNKS_MAX:
                    yield self._batch()
            copied.end()
            self._end(file)
        if self._chunks or self._children:
            yield self._batch()

    def complete(self, followed: Mapping[str, Any]) -> Batch:
        """Return the last batch of a namespace's copy, with the Complete record.

        `followed` are the final positions of the splits that copied the rest of the namespace.
        """
        data = self._data
        ranges = {
            split: msgspec.convert(followed[split], RangePosition)
            for file in data.divided
            for split in file.ranges
        }
        rows = self._position.rows + sum(each.rows for each in ranges.values())
        if (whole := followed.get(whole_id(data.namespace))) is not None:
            rows += msgspec.convert(whole, CopyPosition).rows
        children = tuple(
            self._follow(file, whole_position(file.position, map(ranges.__getitem__, file.ranges)))
            for file in data.divided
        )
        complete = documents([_encode({"rows": rows})])
        records = change_records(
            data.namespace, complete, Mode.COMPLETE, Op.NOOP, self._state.now_ms
        )
        identities = [data.namespace.encode()] if self._state.options.identity else None
        position = msgspec.to_builtins(self._position)
        return Batch(records, position, (), identities, children, finished=True)

    def end(self) -> Batch:
        """Return the last batch of a split that copied some files of a namespace."""
        return Batch(None, msgspec.to_builtins(self._position), finished=True)

    def _read(self, file: CopyFile) -> Iterator[FileChunk]:
        position = self._position.file_position or file.position
        opened = self._state.open_known(file.position)
        if opened is None:
            return
        try:
            format = self._state.format_of(file.position.path)
            end = self._state.file_end
            while (chunk := format.read(opened, position, file.size, end)) is not None:
                if format.grows and not is_intact(opened, position):
                    return  # The file was rewritten; the split that follows it detects that.
                position = chunk.position
                yield chunk
        except UnreadableFile as error:
            yield unreadable_chunk(position, str(error), opened.info(position.path))
        finally:
            opened.close()

    def _add(self, chunk: FileChunk) -> None:
        before = self._position
        self._chunks.append(chunk)
        self._chunk_bytes += chunk.values.nbytes + sum(len(bad.value) for bad in chunk.bad)
        rows = before.rows + len(chunk.values)
        self._position = CopyPosition(before.number, chunk.position, rows)

    def _end(self, file: CopyFile) -> None:
        position = self._position
        end = position.file_position or file.position
        self._children.append(self._follow(file, end))
        self._position = CopyPosition(position.number + 1, None, position.rows)

    def _follow(self, file: CopyFile | DividedFile, end: FilePosition) -> Split:
        """Return the split that follows a file from the end of its copy."""
        namespace = self._data.namespace
        data = FollowData(file.position.path, namespace, end, file.split)
        return Split(
            file.split,
            msgspec.to_builtins(data),
            follows=(copy_id(namespace),),
            bound=self._split.bound,
            namespace=namespace,
        )

    def _batch(self) -> Batch:
        children = tuple(self._children)
        chunks = self._chunks
        self._children, self._chunks, self._chunk_bytes = [], [], 0
        return self._state.batch(self._data.namespace, chunks, Mode.COPY, self._position, children)
