"""Following: what is written to the files that have a name, one after the other.

A split follows a name. It reads the file that has it, also when that is renamed or deleted, to its
end; then the next file of that name. When a file was replaced by one that begins with all that was
read, as by an editor, it goes on behind that. A file cut short is read again from its beginning.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Generator, Iterator
from typing import TypeAlias

import msgspec

from tailrace.message import Mode
from tailrace.readers.file_source import FileSource, Survey
from tailrace.readers.files import FileInfo, Listing, OpenFile, Unreadable, find_in_directory
from tailrace.readers.lines import Ending, Piece, given_up
from tailrace.readers.place import Place
from tailrace.readers.registry import QUIET_LOOKS
from tailrace.readers.verdict import Judge, Verdict, holds
from tailrace.source.reader import Batch, Split, Until

_log = logging.getLogger(__name__)

Batches: TypeAlias = "Generator[Batch, None, bool]"


class FollowData(msgspec.Struct, frozen=True):
    """The name that a split follows, the namespace of its rows, and the place it begins at.

    `owner` is the split that the registry names; another one reads only the file it begins with.
    """

    name: str
    namespace: str
    place: Place
    owner: str


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
        self._judge = Judge(patient=source.until is Until.STOPPED)
        self._intact: FileInfo | None = None
        self._unreadable: FileInfo | None = None
        source.followed[split.id] = self

    @property
    def name(self) -> str:
        """The name that is followed."""
        return self._data.name

    @property
    def place(self) -> Place:
        """How far the present file was read."""
        return self._place

    def is_gone(self, listing: Listing) -> bool:
        """Whether the file is there no more, or is shorter than what was read."""
        return self._source.is_gone(self._place, self._data.owner, listing)

    def has_nameless(self, listing: Listing) -> bool:
        """Whether files that are there no more are still to be read after this one."""
        return self._source.has_nameless(self._split.id, self._place.turn, listing)

    def is_drained(self, listing: Listing) -> bool:
        """Whether nothing more will be read of a file that is gone."""
        present = listing.find(self._place.device, self._place.inode)
        return present is not None or self._file is None or self._quiet_looks >= QUIET_LOOKS

    def batches(self) -> Iterator[Batch | None]:
        """What there is, look by look, until the name is gone."""
        seen = 0
        while True:
            survey = self._source.survey
            if survey is not None and survey.number > seen:
                seen = survey.number
                if not (yield from self._look(survey)):
                    self.release()
                    return
            yield None

    def release(self) -> None:
        """Close the file for now."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._source.let_go(self)

    def _look(self, survey: Survey) -> Batches:
        """Read all there is at a look; False when that was all for ever, or for now."""
        source = self._source
        once = source.until is Until.NOW
        while True:
            present = self._present(survey)
            if present is not None and self._file is None:
                return not once  # it is on its way to another name
            successor = self._successor(survey)
            displaced = present is None or successor is not None
            news = yield from self._read(present, Ending.GROWING if displaced else source.ending)
            if once and self._file is not None and not self._file.is_whole:
                _log.warning("%s is not whole: its gzip data ends too early", self._place.path)
            self._quiet_looks = self._quiet_looks + 1 if displaced and not news else 0
            # Who rotates again is done with the file before.
            looks = 1 if self.has_nameless(survey.listing) else QUIET_LOOKS
            if not displaced or (not once and self._quiet_looks < looks):
                return not once
            if successor is None:
                if self._quiet_looks == QUIET_LOOKS:
                    self._drained_at = survey.number
                # The watching had a whole look since then: it has recognised a copy of the file.
                is_forgotten = survey.number >= self._drained_at + 2
                if once or not is_forgotten or survey.is_named(self._data.name, self._split.id):
                    return not once
                rest = self._rest()
                self.release()
                del self._source.followed[self._split.id]
                yield dataclasses.replace(self._batch(rest, self._place), finished=True)
                return False
            if not (yield from self._succeed(survey, *successor, present)):
                return not once

    def _present(self, survey: Survey) -> FileInfo | None:
        """The file that is read, if it is there, by whatever name; open, unless it was renamed or
        written anew since the look."""
        place = self._place
        if self._file is None and (kept := self._source.take(place.identity)) is not None:
            self._hold(kept)
        found = survey.listing.find(place.device, place.inode)
        if found is not None:
            if not survey.is_known(found, self._data.owner, place.turn):
                self.release()
                return None
            if self._file is not None:
                return found
            opened = self._open(found.path) or self._open_beside(found.path)
            if opened is not None and not survey.is_still(found, opened):
                self.release()
            return found
        if self._file is None and not self._searched:
            # Rotated while nobody looked, to a name that is not asked for.
            opened = self._open_beside(self._data.name)
            if opened is not None and not self._is_known(opened):
                self.release()
        self._searched = True
        return None

    def _open(self, path: str) -> OpenFile | None:
        """Open the file that is read; None when another one has the path by now."""
        opened = self._source.open(path)
        if opened is None:
            return None
        if opened.identity != (self._place.device, self._place.inode):
            opened.close()
            return None
        self._hold(opened)
        return opened

    def _open_beside(self, path: str) -> OpenFile | None:
        """Open the file that is read in the directory of a path, whatever its name is."""
        beside = find_in_directory(path, self._place.inode)
        return None if beside is None else self._open(beside)

    def _hold(self, opened: OpenFile) -> None:
        self._file = opened
        self._source.hold(self, opened)

    def _is_known(self, opened: OpenFile) -> bool:
        """Whether an open file begins as the known one."""
        head = self._place.head
        try:
            return head.fits(opened.read(0, head.length))
        except Unreadable:
            return False

    def _successor(self, survey: Survey) -> tuple[int, FileInfo] | None:
        """The turn of the next file of the name, and the file; None when there is none there."""
        if self._split.id != self._data.owner:
            return None
        for turn, identity in survey.files_behind(self._split.id, self._place.turn):
            found = survey.listing.find(*identity)
            if found is not None:
                return turn, found
            kept = self._source.kept(*identity)
            if kept is not None:
                return turn, kept.info(self._data.name)
            if self._source.until is Until.STOPPED:
                # It may be on its way from one name to another.
                return None
        return None

    def _read(self, present: FileInfo | None, ending: Ending) -> Batches:
        """Read on to the end; whether there was anything."""
        if (yield from self._begin_again()):
            return True
        file = self._file
        if file is None or self._place.given_up:
            return False
        limit = present.size if present and self._source.until is Until.NOW else None
        news = False
        while (piece := self._piece(file, self._place, limit, ending)) is not None:
            if self._is_rewritten(file):  # meanwhile, so that it may be anything
                break
            news = True
            self._place = piece.place
            self._source.hold(self, file)
            yield self._batch([piece], self._place)
            if self._file is not file:  # others needed the descriptor
                break
        return news

    def _rest(self) -> list[Piece]:
        """What is left at the end of a file that is gone: a line without a newline."""
        pieces: list[Piece] = []
        place = self._place
        while self._file is not None and not place.given_up:
            piece = self._piece(self._file, place, None, Ending.GONE)
            if piece is None:
                break
            pieces.append(piece)
            place = piece.place
        return pieces

    def _piece(
        self, file: OpenFile, place: Place, limit: int | None, ending: Ending
    ) -> Piece | None:
        try:
            return self._format.read(file, place, limit, ending)
        except Unreadable as error:
            now = file.info("")
            settled = self._unreadable == now or ending is not Ending.GROWING
            self._unreadable = now
            return given_up(place, str(error), now) if settled else None

    def _batch(
        self, pieces: list[Piece], position: Place, children: tuple[Split, ...] = ()
    ) -> Batch:
        return self._source.batch(self._data.namespace, pieces, Mode.SYNC, position, children)

    def _begin_again(self) -> Batches:
        """Begin again where the file was written anew; whether to leave it for this look."""
        file = self._file
        if file is None or not self._is_rewritten(file):
            return False
        now = file.info(self._place.path)
        match self._compare(file, now):
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

    def _compare(self, file: OpenFile, now: FileInfo) -> Verdict:
        """What a file is, compared to what was read."""
        if self._format.grows:
            return self._judge.compare(file, now, self._place)
        return self._judge.settle(now)

    def _succeed(
        self, survey: Survey, turn: int, successor: FileInfo, present: FileInfo | None
    ) -> Batches:
        """Go on with the next file of the name; False when it is too early to tell how."""
        renamed = present is not None or (self._file is not None and self._file.linked)
        kept = self._source.kept(*successor.identity)
        opened = kept or self._source.open(successor.path)
        if opened is None:
            return False
        verdict = Verdict.UNKNOWN
        if survey.is_still(successor, opened):
            another = renamed or survey.is_fresh(successor)
            verdict = Verdict.ANOTHER if another else self._compare(opened, successor)
            if verdict is Verdict.CONTINUED and not self._is_edition(opened):
                verdict = Verdict.ANOTHER
        if verdict is Verdict.UNKNOWN:
            if kept is None:
                opened.close()
            return False
        self._source.take(successor.identity)
        rest: list[Piece] = []
        children: tuple[Split, ...] = ()
        path, device, inode = successor.path, successor.device, successor.inode
        if verdict is Verdict.CONTINUED:
            self._place = msgspec.structs.replace(
                self._place, path=path, device=device, inode=inode, turn=turn, given_up=False
            )
        else:
            rest = self._rest()
            begun = Place(path, device, inode, turn=turn)
            if present is not None:
                children = (self._late(rest[-1].place if rest else self._place),)
                self._place = msgspec.structs.replace(begun, past=self._place.past)
            else:
                self._place = self._place.then(begun)
        self.release()
        self._hold(opened)
        self._quiet_looks = 0
        yield self._batch(rest, self._place, children)
        return True

    def _is_edition(self, opened: OpenFile) -> bool:
        """Whether a file that begins with all that was read took the name from the one before, as
        when an editor saves, and was not made after that was deleted.

        One with nothing new in it must have been written before the other one lost its name.
        """
        if opened.read(self._place.offset, 1):
            return True
        before = self._file
        return before is not None and opened.info("").modified_ns < before.changed_ns

    def _late(self, place: Place) -> Split:
        """A split that reads what is still added to a file whose name another one has."""
        data = msgspec.structs.replace(self._data, place=place)
        return Split(f"{self._split.id}~{place.turn}", msgspec.to_builtins(data))
