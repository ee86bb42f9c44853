"""Copying: what a namespace's files held when they were discovered, and not a byte more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tailrace.message import Mode, Op
from tailrace.readers.columns import change_records, documents
from tailrace.readers.file_source import FileSource
from tailrace.readers.files import Listing, OpenFile, Unreadable
from tailrace.readers.following import FollowData
from tailrace.readers.lines import CHUNK_BYTES, Piece, given_up
from tailrace.readers.place import Place
from tailrace.readers.verdict import holds
from tailrace.source.reader import Batch, Split

_PIECES_MAX: Final = 1000
_encode = msgspec.json.Encoder().encode


class CopyFile(msgspec.Struct, frozen=True):
    """A file to copy: where it begins, how large it was, and the split that will follow it."""

    place: Place
    size: int
    split: str


class CopyData(msgspec.Struct, frozen=True):
    """What a copy split copies."""

    namespace: str
    files: tuple[CopyFile, ...]


class CopyPosition(msgspec.Struct, frozen=True):
    """How far a copy is: `number` files are copied, the next one up to `place`."""

    number: int = 0
    place: Place | None = None
    rows: int = 0


class _Copied:
    """A file as far as it is copied; whoever follows it takes its place."""

    def __init__(self, source: FileSource, place: Place, owner: str) -> None:
        self._source = source
        self.name = place.path
        self.place = place
        self._owner = owner
        self._ended = False

    def is_gone(self, listing: Listing) -> bool:
        return self._source.is_gone(self.place, self._owner, listing)

    def has_nameless(self, listing: Listing) -> bool:
        return self._source.has_nameless(self._owner, self.place.turn, listing)

    def is_drained(self, listing: Listing) -> bool:
        return self._ended

    def end(self) -> None:
        self._ended = True


class Copy:
    """A copy split. Small files share a batch; each is followed from where its copy ends."""

    def __init__(self, source: FileSource, split: Split, position: CopyPosition) -> None:
        self._source = source
        self._split = split
        self._data = msgspec.convert(split.data, CopyData)
        self._position = position
        self._pieces: list[Piece] = []
        self._children: list[Split] = []
        self._held_bytes = 0

    def batches(self) -> Iterator[Batch]:
        """The rest of the copy; the last batch has the record that says it is complete."""
        data = self._data
        for file in data.files[self._position.number :]:
            place = self._position.place or file.place
            copied = _Copied(self._source, place, file.split)
            self._source.followed[file.split] = copied
            for piece in self._pieces_of(file):
                self._add(piece)
                copied.place = piece.place
                if self._held_bytes >= CHUNK_BYTES or len(self._pieces) >= _PIECES_MAX:
                    yield self._batch()
            copied.end()
            self._end(file)
        if self._pieces or self._children:
            yield self._batch()
        complete = _encode({"rows": self._position.rows})
        records = change_records(
            data.namespace, documents([complete]), Mode.COMPLETE, Op.NOOP, self._source.now_ms
        )
        identities = [data.namespace.encode()] if self._source.options.identity else None
        position = msgspec.to_builtins(self._position)
        yield Batch(records, position, identities=identities, finished=True)

    def _pieces_of(self, file: CopyFile) -> Iterator[Piece]:
        place = self._position.place or file.place
        opened = self._open(file.place)
        if opened is None:
            return
        try:
            format = self._source.format_of(file.place.path)
            ending = self._source.ending
            while (piece := format.read(opened, place, file.size, ending)) is not None:
                if format.grows and not holds(opened, place):
                    return  # it was written anew meanwhile; who follows it finds that out
                place = piece.place
                yield piece
        except Unreadable as error:
            yield given_up(place, str(error), opened.info(place.path))
        finally:
            opened.close()

    def _open(self, place: Place) -> OpenFile | None:
        """The file, under whatever name it has now."""
        now = self._source.look().find(place.device, place.inode)
        for path in (place.path, now.path if now is not None else place.path):
            opened = self._source.open(path)
            if opened is not None:
                if opened.identity == (place.device, place.inode):
                    return opened
                opened.close()
        return None

    def _add(self, piece: Piece) -> None:
        before = self._position
        self._pieces.append(piece)
        self._held_bytes += piece.values.nbytes + sum(len(bad.value) for bad in piece.bad)
        self._position = CopyPosition(before.number, piece.place, before.rows + len(piece.values))

    def _end(self, file: CopyFile) -> None:
        position = self._position
        place = position.place or file.place
        follow = FollowData(file.place.path, self._data.namespace, place, file.split)
        self._children.append(
            Split(file.split, msgspec.to_builtins(follow), follows=(self._split.id,))
        )
        self._position = CopyPosition(position.number + 1, None, position.rows)

    def _batch(self) -> Batch:
        children = tuple(self._children)
        pieces = self._pieces
        self._children, self._pieces, self._held_bytes = [], [], 0
        return self._source.batch(self._data.namespace, pieces, Mode.COPY, self._position, children)
