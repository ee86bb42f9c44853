"""What the splits of an opened `file` reader share: the files, and who reads them how."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from tailrace.clock import Clock, SystemClock
from tailrace.duration import parse_duration
from tailrace.message import Mode, Op
from tailrace.readers.births import born_ns
from tailrace.readers.columns import change_records, concatenated
from tailrace.readers.copies import Followed
from tailrace.readers.csv import Csv
from tailrace.readers.files import FileInfo, GzipFile, Listing, OpenFile, list_files
from tailrace.readers.formats import compression_of, format_of, namespace_of
from tailrace.readers.json_lines import JsonLines
from tailrace.readers.lines import Ending, Format, Piece
from tailrace.readers.parquet import Parquet
from tailrace.readers.place import MARK_BYTES, Mark, Place
from tailrace.readers.registry import Beginning, Registry
from tailrace.source.reader import BadRecord, Batch, Split, Until

if TYPE_CHECKING:
    from tailrace.readers.file import FileReader


class Releasable(Protocol):
    """Who holds an open file that it can open again."""

    def release(self) -> None:
        """Close the file for now."""


class _Kept:
    """A file that is held open until its turn comes, so that it may lose its name meanwhile."""

    def __init__(self, source: FileSource, file: OpenFile) -> None:
        self._source = source
        self.file = file

    def release(self) -> None:
        self._source.take(self.file.identity)
        self.file.close()


class Survey:
    """What a look has found, once it is stored which split reads which file.

    Whoever reads files goes by the last survey alone, so all splits act on the same.
    """

    def __init__(self, number: int, listing: Listing, registry: Registry) -> None:
        self.number = number
        self.listing = listing
        self._registry = registry
        self._turns = registry.by_split()

    def is_known(self, file: FileInfo, owner: str, turn: int) -> bool:
        """Whether a file is that of a split and turn, and not another one of the same identity."""
        known = self._registry.known(file)
        return known is not None and known.is_at(owner, turn)

    def is_still(self, file: FileInfo, opened: OpenFile) -> bool:
        """Whether an open file is the one that was found, and not another one in its place."""
        known = self._registry.known(file)
        if known is None or opened.identity != file.identity:
            return False
        return known.head.fits(os.pread(opened.descriptor, known.head.length, 0))

    def is_fresh(self, file: FileInfo) -> bool:
        """Whether a file took a name that no file had."""
        known = self._registry.known(file)
        return known is not None and known.fresh

    def is_named(self, path: str, split: str) -> bool:
        """Whether a name is followed by a split."""
        name = self._registry.names.get(path)
        return name is not None and name.split == split

    def files_behind(self, split: str, turn: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """The turns and identities of the files that a split reads after one, in turn."""
        return (file for file in self._turns.get(split, ()) if file[0] > turn)


class FileSource:
    """The files of a reader as its splits see them.

    `survey` is None until the watching for new files has looked once. `followed` is who follows or
    copies a file, by split. `rewritten` are files that were found to have been written anew.
    """

    def __init__(self, options: FileReader, until: Until, clock: Clock | None = None) -> None:
        self.options = options
        self.until = until
        self.survey: Survey | None = None
        self.followed: dict[str, Followed] = {}
        self.rewritten: set[tuple[int, int]] = set()
        self._clock = clock or SystemClock()
        self._poll_s = parse_duration(options.poll, "poll").total_seconds()
        self._lines: dict[str, Format] = {}
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._holders: dict[Releasable, tuple[int, int]] = {}
        self._holders_max = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._looked = self._clock.monotonic()
        self._listing = list_files(options.path)

    def look(self) -> Listing:
        """The files there are: when it was opened, or at most one poll interval ago."""
        due = self._clock.monotonic() - self._looked >= self._poll_s
        if self.until is Until.STOPPED and due:
            self._looked = self._clock.monotonic()
            self._listing = list_files(self.options.path)
        return self._listing

    def publish(self, listing: Listing, registry: Registry) -> None:
        """Let all splits act on what was found and stored."""
        number = 1 if self.survey is None else self.survey.number + 1
        self.survey = Survey(number, listing, registry)

    @property
    def ending(self) -> Ending:
        """What lies behind the end of a file that is there."""
        return Ending.NOW if self.until is Until.NOW else Ending.GROWING

    @property
    def now_ms(self) -> int:
        """The time of what is read now."""
        return self._clock.now_ms()

    def namespace_of(self, path: str) -> str:
        """The namespace of a file's rows."""
        return self.options.namespace or namespace_of(path)

    def compression_of(self, path: str) -> str:
        """The compression of a file."""
        return self.options.compression or compression_of(path)

    def format_of(self, path: str) -> Format:
        """How a file is read; `InvalidValue` when neither its name nor an option says."""
        options = self.options
        kind = options.format or format_of(path)
        if kind == "parquet":
            return Parquet(options.identity)
        if kind not in self._lines:
            self._lines[kind] = self._line_format(kind)
        return self._lines[kind]

    def _line_format(self, kind: str) -> Format:
        options = self.options
        if kind == "jsonl":
            return JsonLines(options.identity, options.encoding, options.line_bytes_max)
        return Csv(
            delimiter=options.delimiter,
            types=options.types,
            identity=options.identity,
            encoding=options.encoding,
            line_bytes_max=options.line_bytes_max,
        )

    def open(self, path: str) -> OpenFile | None:
        """Open a file; None when it is gone."""
        try:
            return GzipFile(path) if self.compression_of(path) == "gzip" else OpenFile(path)
        except FileNotFoundError:
            return None

    def beginning_of(self, file: FileInfo, length: int) -> Beginning | None:
        """How a file begins, by so many bytes or, if 0, by as many as are looked at; None when it
        no longer has its path."""
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != file.identity:
                return None
            head = Mark.of(os.pread(descriptor, length or MARK_BYTES, 0))
            return Beginning(head, born_ns(descriptor))
        finally:
            os.close(descriptor)

    def is_gone(self, place: Place, owner: str, listing: Listing) -> bool:
        """Whether a file is there no more, or is shorter than what was read of it."""
        present = listing.find(place.device, place.inode)
        if present is None:
            return True
        if self.survey is not None and not self.survey.is_known(present, owner, place.turn):
            return True
        plain = self.compression_of(place.path) == "none" and self.format_of(place.path).grows
        return plain and present.size < place.offset

    def keep(self, file: FileInfo) -> None:
        """Hold a file open that is to be read later."""
        opened = self.open(file.path)
        if opened is None:
            return
        if opened.identity != file.identity or file.identity in self._kept:
            opened.close()
            return
        kept = self._kept[file.identity] = _Kept(self, opened)
        self.hold(kept, opened)

    def kept(self, device: int, inode: int) -> OpenFile | None:
        """The file of that identity, if it is held open until its turn comes."""
        kept = self._kept.get((device, inode))
        return None if kept is None else kept.file

    def take(self, identity: tuple[int, int]) -> OpenFile | None:
        """The same, for whoever reads it from now on, and closes it."""
        kept = self._kept.pop(identity, None)
        if kept is None:
            return None
        self.let_go(kept)
        return kept.file

    def waiting(self) -> set[tuple[int, int]]:
        """The files that are held open until their turn comes."""
        return set(self._kept)

    def has_nameless(self, split: str, turn: int, listing: Listing) -> bool:
        """Whether files that are there no more are still to be read by a split after a turn."""
        behind = () if self.survey is None else self.survey.files_behind(split, turn)
        return any(
            identity in self._kept and listing.find(*identity) is None for _, identity in behind
        )

    def hold(self, holder: Releasable, file: OpenFile) -> None:
        """Say that a file is held open. When too many are, who has not read for longest closes."""
        self._holders.pop(holder, None)
        self._holders[holder] = file.identity
        if len(self._holders) > self._holders_max:
            next(iter(self._holders)).release()

    def let_go(self, holder: Releasable) -> None:
        """Say that it is closed."""
        self._holders.pop(holder, None)

    def held(self) -> set[tuple[int, int]]:
        """The files that are held open."""
        return set(self._holders.values())

    def batch(
        self,
        namespace: str,
        pieces: Sequence[Piece],
        mode: Mode,
        position: msgspec.Struct,
        children: tuple[Split, ...] = (),
    ) -> Batch:
        """Pieces of files as one batch."""
        values = concatenated([piece.values for piece in pieces])
        records = None
        if len(values):
            records = change_records(namespace, values, mode, Op.INSERT, self.now_ms)
        bad = [
            BadRecord(namespace, f"{piece.place.path}:{line.line}", line.error, line.value)
            for piece in pieces
            for line in piece.bad
        ]
        identities: list[bytes] | None = None
        if self.options.identity:
            identities = [each for piece in pieces for each in piece.identities or ()]
        return Batch(records, msgspec.to_builtins(position), bad, identities, children)

    def close(self) -> None:
        """Close all files."""
        for holder in list(self._holders):
            holder.release()
