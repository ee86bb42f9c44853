"""A follow split: reads what is appended to the files of one name, one file after the other.

The split reads the file that has the name to its end, also after the file was renamed or deleted,
and then the next file of that name. If a file is replaced by one that begins with all bytes that
were read, as editors do when they save, the split continues in the new file after those bytes. A
truncated file is read again from its start.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Generator, Iterator
from typing import TypeAlias

import msgspec

from tailrace.message import Mode
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import (
    FileInfo,
    GzipFile,
    Listing,
    OpenFile,
    UnreadableFile,
    find_in_directory,
)
from tailrace.readers.file.formats.format import FileChunk, FileEnd, unreadable_chunk
from tailrace.readers.file.registry import QUIET_POLLS
from tailrace.readers.file.rewrite_check import Comparison, RewriteCheck, is_intact
from tailrace.readers.file.session_state import FileSessionState
from tailrace.readers.file.snapshot import FileSnapshot
from tailrace.source.reader import Batch, Split, Until

_log = logging.getLogger(__name__)

Batches: TypeAlias = "Generator[Batch, None, bool]"


class FollowData(msgspec.Struct, frozen=True):
    """The name that a split follows, the namespace of its rows, and the position it starts at.

    `owner` is the split in the registry. A split that is not its own owner reads one file only: the
    one it starts with.
    """

    name: str
    namespace: str
    position: FilePosition = msgspec.field(name="place")
    owner: str


class FileFollower:
    """A follow split."""

    def __init__(
        self, state: FileSessionState, split: Split, position: FilePosition | None
    ) -> None:
        self._state = state
        self._split = split
        self._data = msgspec.convert(split.data, FollowData)
        self._position = position or self._data.position
        self._format = state.format_of(self._data.name)
        self._file: OpenFile | None = None
        self._searched = False
        self._quiet_polls = 0
        self._drained_at = 0
        self._rewrite_check = RewriteCheck(patient=state.until is Until.STOPPED)
        self._intact: FileInfo | None = None
        self._unreadable: FileInfo | None = None
        state.followed[split.id] = self

    @property
    def name(self) -> str:
        """The name that the split follows."""
        return self._data.name

    @property
    def position(self) -> FilePosition:
        """How far the current file was read."""
        return self._position

    def is_removed(self, listing: Listing) -> bool:
        """True if the current file was removed, or is shorter than the part that was read."""
        return self._state.is_removed(self._position, self._data.owner, listing)

    def has_unlinked_files(self, listing: Listing) -> bool:
        """True if files without a name are still to be read after the current one."""
        return self._state.has_unlinked_files(self._split.id, self._position.generation, listing)

    def is_drained(self, listing: Listing) -> bool:
        """True if a removed file was read to its end."""
        present = listing.find(self._position.device, self._position.inode)
        return present is not None or self._file is None or self._quiet_polls >= QUIET_POLLS

    def batches(self) -> Iterator[Batch | None]:
        """Yield the rows, poll by poll, until the name is not followed any more."""
        seen = 0
        try:
            while True:
                snapshot = self._state.snapshot
                if snapshot is not None and snapshot.number > seen:
                    seen = snapshot.number
                    if not (yield from self._read_snapshot(snapshot)):
                        return
                yield None
        finally:
            self.release()

    def release(self) -> None:
        """Close the file. It is opened again when it is read."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._state.held_files.unregister(self)

    def _read_snapshot(self, snapshot: FileSnapshot) -> Batches:
        """Read the files of a snapshot; return False if the split has ended."""
        state = self._state
        once = state.until is Until.NOW
        while True:
            current = self._find_current(snapshot)
            if current is not None and self._file is None:
                return not once  # The file is being renamed.
            successor = self._successor(snapshot)
            displaced = current is None or successor is not None
            has_rows = yield from self._read(
                current, FileEnd.GROWING if displaced else state.file_end
            )
            if once and self._file is not None and not self._file.is_whole:
                _log.warning("%s is incomplete: its gzip data is truncated", self._position.path)
            self._quiet_polls = self._quiet_polls + 1 if displaced and not has_rows else 0
            # After a second rotation, nothing is written to the file before it.
            polls = 1 if self.has_unlinked_files(snapshot.listing) else QUIET_POLLS
            if not displaced or (not once and self._quiet_polls < polls):
                return not once
            if successor is None:
                if self._quiet_polls == QUIET_POLLS:
                    self._drained_at = snapshot.number
                # Two snapshots later, the watch split has recognised a copy of the file.
                is_forgotten = snapshot.number >= self._drained_at + 2
                if once or not is_forgotten or snapshot.is_followed(self.name, self._split.id):
                    return not once
                rest = self._read_rest()
                self.release()
                del self._state.followed[self._split.id]
                yield dataclasses.replace(self._batch(rest, self._position), finished=True)
                return False
            if not (yield from self._switch_to(snapshot, *successor, current)):
                return not once

    def _find_current(self, snapshot: FileSnapshot) -> FileInfo | None:
        """Return the file that is read, if it is listed under any name, and open it.

        It stays closed if it was renamed or replaced since it was listed.
        """
        position = self._position
        if self._file is None:
            reserved = self._state.held_files.claim(position.identity)
            if reserved is not None:
                self._hold(reserved)
        found = snapshot.listing.find(position.device, position.inode)
        if found is not None:
            if not snapshot.is_known(found, self._data.owner, position.generation):
                self.release()
                return None
            if self._file is not None:
                return found
            opened = self._open(found.path) or self._open_beside(found.path)
            if opened is not None and not snapshot.is_same_file(found, opened):
                self.release()
            return found
        if self._file is None and not self._searched:
            # The file may have been rotated to a name outside the glob while no run was active.
            opened = self._open_beside(self._data.name)
            if opened is not None and not self._has_same_head(opened):
                self.release()
        self._searched = True
        return None

    def _open(self, path: str) -> OpenFile | None:
        """Open the file that is read; return None if another file has the path."""
        opened = self._state.open(path)
        if opened is None:
            return None
        if opened.identity != (self._position.device, self._position.inode):
            opened.close()
            return None
        self._hold(opened)
        return opened

    def _open_beside(self, path: str) -> OpenFile | None:
        """Open the file that is read under any name in the directory of `path`."""
        beside = find_in_directory(path, self._position.inode)
        return None if beside is None else self._open(beside)

    def _hold(self, opened: OpenFile) -> None:
        self._file = opened
        self._state.held_files.register(self, opened)

    def _has_same_head(self, opened: OpenFile) -> bool:
        """True if an open file begins like the file that is read."""
        head = self._position.head
        try:
            return head.matches(opened.read(0, head.length))
        except UnreadableFile:
            return False

    def _successor(self, snapshot: FileSnapshot) -> tuple[int, FileInfo] | None:
        """Return the generation and state of the next file of the name; None if there is none."""
        if self._split.id != self._data.owner:
            return None
        for generation, identity in snapshot.later_files(self._split.id, self._position.generation):
            found = snapshot.listing.find(*identity)
            if found is not None:
                return generation, found
            reserved = self._state.held_files.reserved(*identity)
            if reserved is not None:
                return generation, reserved.info(self._data.name)
            if self._state.until is Until.STOPPED:
                # The file may be in the middle of a rename.
                return None
        return None

    def _read(self, current: FileInfo | None, end: FileEnd) -> Batches:
        """Read the file to its end; return True if there was anything to read."""
        if (yield from self._restart_if_rewritten()):
            return True
        file = self._file
        if file is None or self._position.given_up:
            return False
        limit = current.size if current and self._state.until is Until.NOW else None
        has_rows = False
        while (chunk := self._chunk(file, self._position, limit, end)) is not None:
            if self._is_rewritten(file):  # The chunk may mix old and new bytes.
                break
            has_rows = True
            lag = _lag(file, self._position, chunk)
            self._position = chunk.position
            self._state.held_files.register(self, file)
            yield dataclasses.replace(self._batch([chunk], self._position), lag=lag)
            if self._file is not file:  # Released, because other files needed the descriptor.
                break
        return has_rows

    def _read_rest(self) -> list[FileChunk]:
        """Return the end of a file that was removed: a last line without a newline."""
        chunks: list[FileChunk] = []
        position = self._position
        while self._file is not None and not position.given_up:
            chunk = self._chunk(self._file, position, None, FileEnd.FINAL)
            if chunk is None:
                break
            chunks.append(chunk)
            position = chunk.position
        return chunks

    def _chunk(
        self, file: OpenFile, position: FilePosition, limit: int | None, end: FileEnd
    ) -> FileChunk | None:
        try:
            return self._format.read(file, position, limit, end)
        except UnreadableFile as error:
            now = file.info("")
            unchanged = self._unreadable == now or end is not FileEnd.GROWING
            self._unreadable = now
            return unreadable_chunk(position, str(error), now) if unchanged else None

    def _batch(
        self, chunks: list[FileChunk], position: FilePosition, children: tuple[Split, ...] = ()
    ) -> Batch:
        return self._state.batch(self._data.namespace, chunks, Mode.SYNC, position, children)

    def _restart_if_rewritten(self) -> Batches:
        """Read a rewritten file from its start; return True to leave it until a later poll."""
        file = self._file
        if file is None or not self._is_rewritten(file):
            return False
        now = file.info(self._position.path)
        match self._compare(file, now):
            case Comparison.UNDECIDED:
                return True
            case Comparison.CONTINUED:
                return False
        self._state.rewritten.add(now.identity)
        generation = self._position.generation
        start = FilePosition(self._position.path, now.device, now.inode, generation=generation)
        self._position = self._position.replaced_by(start)
        yield Batch(None, msgspec.to_builtins(self._position))
        return False

    def _is_rewritten(self, file: OpenFile) -> bool:
        position, now = self._position, file.info("")
        if self._format.grows:
            if now == self._intact:
                return False
            if is_intact(file, position):
                self._intact = now
                return False
            return True
        unchanged = (now.size, now.modified_ns) == (position.size, position.modified_ns)
        return bool(position.size) and not unchanged

    def _compare(self, file: OpenFile, now: FileInfo) -> Comparison:
        """Compare a file to the bytes that were read."""
        if self._format.grows:
            return self._rewrite_check.compare(file, now, self._position)
        return self._rewrite_check.compare_whole(now)

    def _switch_to(
        self,
        snapshot: FileSnapshot,
        generation: int,
        successor: FileInfo,
        current: FileInfo | None,
    ) -> Batches:
        """Continue with the next file of the name; return False if it cannot be compared yet."""
        renamed = current is not None or (self._file is not None and self._file.linked)
        reserved = self._state.held_files.reserved(*successor.identity)
        opened = reserved or self._state.open(successor.path)
        if opened is None:
            return False
        comparison = Comparison.UNDECIDED
        if snapshot.is_same_file(successor, opened):
            different = renamed or snapshot.is_fresh(successor)
            comparison = Comparison.DIFFERENT if different else self._compare(opened, successor)
            if comparison is Comparison.CONTINUED and not self._is_edition(opened):
                comparison = Comparison.DIFFERENT
        if comparison is Comparison.UNDECIDED:
            if reserved is None:
                opened.close()
            return False
        self._state.held_files.claim(successor.identity)
        rest: list[FileChunk] = []
        children: tuple[Split, ...] = ()
        path, device, inode = successor.path, successor.device, successor.inode
        if comparison is Comparison.CONTINUED:
            self._position = msgspec.structs.replace(
                self._position,
                path=path,
                device=device,
                inode=inode,
                generation=generation,
                given_up=False,
            )
        else:
            rest = self._read_rest()
            start = FilePosition(path, device, inode, generation=generation)
            if current is not None:
                children = (self._late_split(rest[-1].position if rest else self._position),)
                self._position = msgspec.structs.replace(start, past=self._position.past)
            else:
                self._position = self._position.replaced_by(start)
        self.release()
        self._hold(opened)
        self._quiet_polls = 0
        yield self._batch(rest, self._position, children)
        return True

    def _is_edition(self, opened: OpenFile) -> bool:
        """True if a file that begins with all bytes that were read replaced the current file.

        An editor replaces a file when it saves. A file that was created after the current one was
        deleted is a new file. If it has no new bytes, it is an edition only if it was written
        before the current file lost its name.
        """
        if opened.read(self._position.offset, 1):
            return True
        before = self._file
        return before is not None and opened.info("").modified_ns < before.changed_ns

    def _late_split(self, position: FilePosition) -> Split:
        """Return a split that reads what is still appended to a file that was renamed."""
        data = msgspec.structs.replace(self._data, position=position)
        return Split(
            f"{self._split.id}~{position.generation}",
            msgspec.to_builtins(data),
            bound=self._split.bound,
            namespace=data.namespace,
        )


def _lag(file: OpenFile, before: FilePosition, chunk: FileChunk) -> int | None:
    """Return about how many rows of a file come after a chunk, if they are as long as its own."""
    read = chunk.position.offset - before.offset
    if isinstance(file, GzipFile) or read <= 0 or not len(chunk.values):
        return None  # Its size is not that of its lines.
    left = max(0, file.info("").size - chunk.position.offset)
    return left * len(chunk.values) // read
