"""A copy split: reads a namespace's files up to their sizes at the discovery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tailrace.message import Mode, Op
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import Listing, OpenFile, UnreadableFile
from tailrace.readers.file.follow import FollowData
from tailrace.readers.file.formats.columns import change_records, documents
from tailrace.readers.file.formats.format import FileChunk, unreadable_chunk
from tailrace.readers.file.formats.lines import CHUNK_BYTES
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


class CopyData(msgspec.Struct, frozen=True):
    """The data of a copy split: the namespace and the files to copy."""

    namespace: str
    files: tuple[CopyFile, ...]


class CopyPosition(msgspec.Struct, frozen=True):
    """How far a copy is: `number` files are complete, and the next one up to `file_position`."""

    number: int = 0
    file_position: FilePosition | None = msgspec.field(default=None, name="place")
    rows: int = 0


class _CopiedFile:
    """A file that is being copied, until the split that follows it takes its place."""

    def __init__(self, state: FileSessionState, position: FilePosition, split: str) -> None:
        self._state = state
        self.name = position.path
        self.position = position
        self._split = split
        self._ended = False

    def is_removed(self, listing: Listing) -> bool:
        return self._state.is_removed(self.position, self._split, listing)

    def has_unlinked_files(self, listing: Listing) -> bool:
        return self._state.has_unlinked_files(self._split, self.position.generation, listing)

    def is_drained(self, listing: Listing) -> bool:
        return self._ended

    def end(self) -> None:
        self._ended = True


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
        """Yield the rest of the copy; the last batch has the Complete record."""
        data = self._data
        for file in data.files[self._position.number :]:
            start = self._position.file_position or file.position
            copied = _CopiedFile(self._state, start, file.split)
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
        complete = _encode({"rows": self._position.rows})
        records = change_records(
            data.namespace, documents([complete]), Mode.COMPLETE, Op.NOOP, self._state.now_ms
        )
        identities = [data.namespace.encode()] if self._state.options.identity else None
        position = msgspec.to_builtins(self._position)
        yield Batch(records, position, identities=identities, finished=True)

    def _read(self, file: CopyFile) -> Iterator[FileChunk]:
        position = self._position.file_position or file.position
        opened = self._open(file.position)
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

    def _open(self, position: FilePosition) -> OpenFile | None:
        """Open the file under its old or its present name."""
        now = self._state.poll().find(position.device, position.inode)
        for path in (position.path, now.path if now is not None else position.path):
            opened = self._state.open(path)
            if opened is not None:
                if opened.identity == (position.device, position.inode):
                    return opened
                opened.close()
        return None

    def _add(self, chunk: FileChunk) -> None:
        before = self._position
        self._chunks.append(chunk)
        self._chunk_bytes += chunk.values.nbytes + sum(len(bad.value) for bad in chunk.bad)
        rows = before.rows + len(chunk.values)
        self._position = CopyPosition(before.number, chunk.position, rows)

    def _end(self, file: CopyFile) -> None:
        position = self._position
        end = position.file_position or file.position
        follow = FollowData(file.position.path, self._data.namespace, end, file.split)
        self._children.append(
            Split(file.split, msgspec.to_builtins(follow), follows=(self._split.id,))
        )
        self._position = CopyPosition(position.number + 1, None, position.rows)

    def _batch(self) -> Batch:
        children = tuple(self._children)
        chunks = self._chunks
        self._children, self._chunks, self._chunk_bytes = [], [], 0
        return self._state.batch(self._data.namespace, chunks, Mode.COPY, self._position, children)
