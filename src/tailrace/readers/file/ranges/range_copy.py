"""A range split: copies a part of a large file. Any task reads it, in any session."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tailrace.message import Mode
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import OpenFile, UnreadableFile
from tailrace.readers.file.formats.format import FileChunk, unreadable_chunk
from tailrace.readers.file.formats.lines import find_line
from tailrace.readers.file.formats.parquet import ParquetFormat
from tailrace.readers.file.ranges.range_position import RangeData, RangePosition
from tailrace.readers.file.registry import QUIET_POLLS
from tailrace.readers.file.rewrite_check import is_intact
from tailrace.readers.file.session_state import FileSessionState
from tailrace.source.reader import Batch, Split


class RangeCopy:
    """A range split.

    It ends where it is if the file was rewritten, cut or removed: the split that follows the file
    detects that, as it does after an undivided copy.
    """

    def __init__(
        self, state: FileSessionState, split: Split, position: RangePosition | None
    ) -> None:
        self._state = state
        self._data = msgspec.convert(split.data, RangeData)
        self._position = position or RangePosition()
        self._format = state.format_of(self._data.start.path)
        if not self._format.grows:
            self._format = ParquetFormat(state.options.identity, self._data.range.end)
        self._file: OpenFile | None = None
        self._end = self._data.range.end

    def batches(self) -> Iterator[Batch | None]:
        """Yield the rest of the range; the last batch is finished."""
        polls = 0
        try:
            # A file that is being renamed may be found under neither name.
            while polls < QUIET_POLLS:
                file = self._open()
                if file is None:
                    polls += 1
                    yield None
                    continue
                polls = 0
                chunk = self._chunk(file)
                if chunk is None:
                    break
                yield self._batch(chunk)
        finally:
            self.release()
        yield Batch(None, msgspec.to_builtins(self._position), finished=True)

    def release(self) -> None:
        """Close the file. It is opened again when it is read."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._state.held_files.unregister(self)

    def _open(self) -> OpenFile | None:
        if self._file is None:
            start = self._data.start
            self._file = self._state.open_known(start) or self._state.open_beside(start)
            if self._file is None:
                return None
            self._find_bounds(self._file)
        self._state.held_files.register(self, self._file)
        return self._file

    def _find_bounds(self, file: OpenFile) -> None:
        """Find the first line of the range, and the end of its last line."""
        data, begin = self._data, self._data.range.start
        found: int | None = begin
        if self._format.grows:
            self._end = find_line(file, data.range.end, data.size) or data.size
            found = find_line(file, begin, data.range.end)
        if self._position.file_position is None and found is not None:
            line = 0 if self._format.grows else begin
            start = msgspec.structs.replace(data.start, offset=found, line=line)
            self._position = RangePosition(found, start)

    def _chunk(self, file: OpenFile) -> FileChunk | None:
        """Return the next rows; None at the end of the range, or if the file was rewritten."""
        position = self._position.file_position
        if position is None or position.given_up:
            return None
        try:
            chunk = self._format.read(file, position, self._end, self._state.file_end)
        except UnreadableFile as error:
            chunk = unreadable_chunk(position, str(error), file.info(position.path))
        # The chunk may mix old and new bytes.
        return chunk if self._is_intact(file, position) else None

    def _is_intact(self, file: OpenFile, position: FilePosition) -> bool:
        """True if the file was not rewritten since the discovery, as far as can be seen."""
        if self._format.grows:
            return is_intact(file, position)
        start, now = self._data.start, file.info(position.path)
        return (now.size, now.modified_ns) == (start.size, start.modified_ns)

    def _batch(self, chunk: FileChunk) -> Batch:
        before = self._position
        line = before.file_position.line if before.file_position is not None else 0
        self._position = RangePosition(
            before.begin,
            chunk.position,
            before.lines + chunk.position.line - line,
            before.rows + len(chunk.values),
        )
        if self._format.grows:  # The lines before the range were not counted.
            chunk = chunk._replace(bad=[bad._replace(line=None) for bad in chunk.bad])
        return self._state.batch(self._data.namespace, [chunk], Mode.COPY, self._position)
