"""Following: what is written to the files that have a name, one after the other.

A split follows a name. It reads the file that has it, also when that is renamed or deleted, to its
end; then the next file of that name. When a file was replaced by one that begins with all that was
read, as by an editor, it goes on behind that. A file cut short is read again from its beginning.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from tailrace.message import Mode
from tailrace.readers.copies import checksum, holds
from tailrace.readers.file_source import FileSource
from tailrace.readers.files import FileInfo, Listing, OpenFile, Unreadable, find_in_directory
from tailrace.readers.lines import Ending, Piece, given_up
from tailrace.readers.place import Place
from tailrace.readers.registry import QUIET_LOOKS
from tailrace.source.reader import Batch, Split, Until

Batches: TypeAlias = "Generator[Batch, None, bool]"


class FollowData(msgspec.Struct, frozen=True):
    """The name that a split follows, the namespace of its rows, and the place it begins at.

    `owner` is the split that the registry names; another one reads only the file it begins with.
    """

    name: str
    namespace: str
    place: Place
    owner: str


class Verdict(Enum):
    """What a changed file is, compared to what was read."""

    CONTINUED = auto()
    """It begins with all that was read."""
    ANOTHER = auto()
    """It does not."""
    UNKNOWN = auto()
    """Not known yet: it is shorter than what was read, and may still be written."""


class Follower:
    """A follow split."""

    def __init__(self, source: FileSource, split: Split, place: Place | None) -> None:
        self._source = source
        self._split = split
        self._data = msgspec.convert(split.data, FollowData)
        self._place = place or self._data.place
        self._format = source.format_of(self._data.name)
        self._file: OpenFile | None = None
        self._searched = False
        self._quiet_looks = 0
        self._drained_at = 0
        self._judged: FileInfo | None = None
        self._intact: FileInfo | None = None
        self._unreadable: FileInfo | None = None
        source.followed[split.id] = self

    @property
    def place(self) -> Place:
        """How far the present file was read."""
        return self._place

    def is_gone(self, listing: Listing) -> bool:
        """Whether the file is there no more, or is shorter than what was read."""
        return self._source.is_gone(self._place, self._data.owner, listing)

    def is_drained(self, listing: Listing) -> bool:
        """Whether nothing more will be read of a file that is gone."""
        present = listing.find(self._place.device, self._place.inode)
        return present is not None or self._file is None or self._quiet_looks >= QUIET_LOOKS

    def batches(self) -> Iterator[Batch | None]:
        """What there is, look by look, until the name is gone."""
        source = self._source
        looks = 0
        while not source.watched:
            yield None
        while True:
            listing = source.look()
            if looks != source.looks:
                looks = source.looks
                if not (yield from self._look(listing)):
                    self.release()
                    return
            yield None

    def release(self) -> None:
        """Close the file for now."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._source.let_go(self)

    def _look(self, listing: Listing) -> Batches:
        """Read all there is at a look; False when that was all for ever, or for now."""
        once = self._source.until is Until.NOW
        while True:
            present = self._present(listing)
            successor = self._successor(listing)
            displaced = present is None or successor is not None
            news = yield from self._read(present, Ending.GROWING if displaced else None)
            self._quiet_looks = self._quiet_looks + 1 if displaced and not news else 0
            if not displaced or (not once and self._quiet_looks < QUIET_LOOKS):
                return not once
            if successor is None:
                if once or self._quiet_looks == QUIET_LOOKS:
                    self._drained_at = self._source.censuses
                if once or self._owns_name() or not self._is_forgotten():
                    return not once
                yield from self._read(present, Ending.GONE)
                self.release()
                del self._source.followed[self._split.id]
                yield Batch(None, msgspec.to_builtins(self._place), finished=True)
                return False
            if not (yield from self._succeed(*successor, present)):
                return not once

    def _is_forgotten(self) -> bool:
        """Whether the watching had a whole look since all was read: a copy of the file would have
        been recognised by it."""
        return self._source.censuses >= self._drained_at + 2

    def _present(self, listing: Listing) -> FileInfo | None:
        """The file that is read, if it is in the listing, by whatever name."""
        place = self._place
        found = listing.find(place.device, place.inode)
        if found is not None:
            if not self._source.is_known(found, self._data.owner, place.turn):
                self.release()
                return None
            return found if self._file is not None or self._open(found.path) else None
        if self._file is None and not self._searched:
            # Rotated while nobody looked, to a name that is not asked for.
            path = find_in_directory(self._data.name, place.inode)
            if path is not None and self._open(path) and not self._is_known():
                self.release()
        self._searched = True
        return None

    def _open(self, path: str) -> bool:
        """Open the file that is read; False when another one has the path by now."""
        opened = self._source.open(path)
        if opened is None:
            return False
        if opened.identity != (self._place.device, self._place.inode):
            opened.close()
            return False
        self._file = opened
        self._source.hold(self, opened)
        return True

    def _is_known(self) -> bool:
        """Whether the open file begins as the known one."""
        head = self._place.head
        try:
            return self._file is not None and head.fits(self._file.read(0, head.length))
        except Unreadable:
            return False

    def _owns_name(self) -> bool:
        name = self._source.registry.names.get(self._data.name)
        return name is not None and name.split == self._split.id

    def _successor(self, listing: Listing) -> tuple[int, FileInfo] | None:
        """The next file of the name and its turn; None when there is none, or it is not found."""
        if self._split.id != self._data.owner:
            return None
        for turn, identity in self._source.files_behind(self._split.id, self._place.turn):
            found = listing.find(*identity)
            if found is not None:
                return turn, found
            if self._source.until is Until.STOPPED:
                # It may be on its way from one name to another.
                return None
        return None

    def _read(self, present: FileInfo | None, ending: Ending | None) -> Batches:
        """Read on to the end; whether there was anything."""
        if ending is not Ending.GONE and (yield from self._begin_again()):
            return True
        file = self._file
        if file is None or self._place.given_up:
            return False
        limit = present.size if present and self._source.until is Until.NOW else None
        news = False
        while (piece := self._piece(file, limit, ending or self._source.ending)) is not None:
            if self._is_rewritten(file):  # meanwhile, so that it may be anything
                break
            news = True
            self._place = piece.place
            self._source.hold(self, file)
            yield self._batch(piece)
            if self._file is not file:  # others needed the descriptor
                break
        return news

    def _piece(self, file: OpenFile, limit: int | None, ending: Ending) -> Piece | None:
        try:
            return self._format.read(file, self._place, limit, ending)
        except Unreadable as error:
            now = file.info("")
            settled = self._unreadable == now or ending is not Ending.GROWING
            self._unreadable = now
            return given_up(self._place, str(error), now) if settled else None

    def _batch(self, piece: Piece) -> Batch:
        return self._source.batch(self._data.namespace, [piece], Mode.SYNC, piece.place)

    def _begin_again(self) -> Batches:
        """Begin again where the file was written anew; whether to leave it for this look."""
        file = self._file
        if file is None or not self._is_rewritten(file):
            return False
        now = file.info(self._place.path)
        match self._judge(file, now):
            case Verdict.UNKNOWN:
                return True
            case Verdict.CONTINUED:
                return False
        self._source.rewritten.add(now.identity)
        again = Place(self._place.path, now.device, now.inode, turn=self._place.turn)
        self._place = self._place.then(again)
        yield Batch(None, msgspec.to_builtins(self._place))
        return False

    def _is_rewritten(self, file: OpenFile) -> bool:
        place, now = self._place, file.info("")
        if self._format.grows:
            if now == self._intact:
                return False
            if holds(file, place):
                self._intact = now
                return False
            return True
        return bool(place.size) and (now.size, now.modified_ns) != (place.size, place.modified_ns)

    def _judge(self, file: OpenFile, now: FileInfo) -> Verdict:
        """Compare a file to what was read."""
        place = self._place
        settled = now == self._judged or self._source.until is Until.NOW
        self._judged = now
        if not self._format.grows:
            return Verdict.ANOTHER if settled else Verdict.UNKNOWN
        try:
            if checksum(file, place.offset) == place.checksum:
                return Verdict.CONTINUED
            if not place.head.fits(head := file.read(0, place.head.length)):
                if len(head) == place.head.length or settled:
                    return Verdict.ANOTHER
                return Verdict.UNKNOWN
        except Unreadable:
            pass
        return Verdict.ANOTHER if settled else Verdict.UNKNOWN

    def _succeed(self, turn: int, successor: FileInfo, present: FileInfo | None) -> Batches:
        """Go on with the next file of the name; False when it is too early to tell how."""
        renamed = present is not None or (self._file is not None and self._file.linked)
        opened = self._source.open(successor.path)
        if opened is None:
            return False
        verdict = Verdict.UNKNOWN
        if self._source.is_still(successor, opened):
            verdict = Verdict.ANOTHER if renamed else self._judge(opened, successor)
        if verdict is Verdict.UNKNOWN:
            opened.close()
            return False
        before = self._place
        if verdict is Verdict.ANOTHER:
            yield from self._read(present, Ending.GONE)
        children: tuple[Split, ...] = ()
        if present is not None:
            data = msgspec.structs.replace(self._data, place=self._place)
            late = f"{self._split.id}~{self._place.turn}"
            children = (Split(late, msgspec.to_builtins(data)),)
        path, device, inode = successor.path, successor.device, successor.inode
        if verdict is Verdict.CONTINUED:
            self._place = msgspec.structs.replace(
                self._place, path=path, device=device, inode=inode, turn=turn, given_up=False
            )
        elif present is not None:
            past = self._place.past
            self._place = Place(path, device, inode, turn=turn, past=past)
        else:
            self._place = before.then(Place(path, device, inode, turn=turn))
        self.release()
        self._file = opened
        self._quiet_looks = 0
        self._source.hold(self, opened)
        yield Batch(None, msgspec.to_builtins(self._place), children=children)
        return True
