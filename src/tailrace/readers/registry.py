"""Which files of a glob are read by which split: what the watching of new files keeps.

A *name* is a path that a split follows, whatever file has it. Every file that was seen under a name
is given to the split of that name, in turn; so none is left out, however often it is renamed, and
none is read twice. A file is known by its identity and by how it begins: a renamed one is not taken
for new, and a new one that got the identity of a deleted one is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tailrace.readers.files import FileInfo, Listing
from tailrace.readers.place import Mark

QUIET_LOOKS: Final = 3
"""So many looks in a row must find the same before a file counts as gone, or as whole.

A directory that is read while a file is renamed in it may show the file under no name at all; and
who writes a file goes on for a while after it was renamed.
"""


class Beginning(NamedTuple):
    """How a file begins: with what, and when it was made (0 where the system does not tell)."""

    head: Mark
    born_ns: int


class Name(msgspec.Struct, frozen=True, array_like=True):
    """Who follows a name, the turn of its last file, and whether it was `missing` at a look."""

    split: str
    turn: int
    missing: bool = False


class Known(msgspec.Struct, frozen=True, array_like=True):
    """A file: the split that reads it, which of the files of that split it is, how it begins.

    A `fresh` one took a name that no file had: it is no new edition of the one before.
    """

    split: str
    turn: int
    head: Mark
    born_ns: int = 0
    fresh: bool = False

    def is_at(self, split: str, turn: int) -> bool:
        """Whether it is the file of that split and turn."""
        return (self.split, self.turn) == (split, turn)


class Registry(msgspec.Struct, frozen=True):
    """The names, by path, and the files, by identity. `count` is how many splits were ever made."""

    names: dict[str, Name] = {}
    files: dict[str, Known] = {}
    count: int = 0

    def known(self, file: FileInfo) -> Known | None:
        """What is known of a file."""
        return self.files.get(_key(file.device, file.inode))

    def by_split(self) -> dict[str, list[tuple[int, tuple[int, int]]]]:
        """The turns and identities of the files of each split, in turn."""
        found: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        for key, known in self.files.items():
            device, _, inode = key.partition(":")
            found.setdefault(known.split, []).append((known.turn, (int(device), int(inode))))
        for files in found.values():
            files.sort()
        return found


def _key(device: int, inode: int) -> str:
    return f"{device}:{inode}"


BeginningOf: TypeAlias = Callable[[FileInfo, int], Beginning | None]
"""How a file begins, by so many bytes or, for 0, by as many as there are to be known; None when it
no longer has its path."""


class Census:
    """Compares what a look finds to what is known, look by look."""

    def __init__(self, registry: Registry, beginning_of: BeginningOf) -> None:
        self.registry = registry
        self._beginning_of = beginning_of
        self._missed_files = _Absences()
        self._missed_names = _Absences()

    def take(
        self,
        listing: Listing,
        is_due: Callable[[FileInfo], bool],
        held: Collection[tuple[int, int]] = (),
        rewritten: Collection[tuple[int, int]] = (),
        waiting: Collection[tuple[int, int]] = (),
    ) -> tuple[Registry, list[tuple[str, FileInfo]]]:
        """What is to be known now, and the files with new names, each with its new split's id.

        Files with new names that are not due yet are left for another look. Those that are `held`
        open are certainly what they were; those that were `rewritten` begin otherwise than before;
        those that are `waiting` are still to be read, although they may have no name any more.
        """
        names, files = dict(self.registry.names), dict(self.registry.files)
        count = self.registry.count
        new: list[tuple[str, FileInfo]] = []
        for file in listing:
            key = _key(file.device, file.inode)
            known = files.get(key)
            name = names.get(file.path)
            if known is not None and self._missed_files.were(key) and _is_earlier(known, name):
                known = None  # its identity was given to the file that has the name now
            if known is not None:
                is_held = file.identity in held
                known = known if is_held else self._recognised(known, file)
            if known is not None:
                if file.identity in rewritten:
                    known = msgspec.structs.replace(known, head=Mark())
                files[key] = self._with_beginning(known, file)
                continue
            fresh = name is None or name.missing
            if name is not None:
                name = Name(name.split, name.turn + 1)
            elif is_due(file):
                count += 1
                name = Name(f"follow:{count}:{file.path}", 0)
                new.append((name.split, file))
            else:
                files.pop(key, None)
                continue
            names[file.path] = name
            known = Known(name.split, name.turn, Mark(), fresh=fresh)
            files[key] = self._with_beginning(known, file)
        present = {_key(*file.identity) for file in listing} | {_key(*each) for each in waiting}
        for key in self._missed_files.gone(files.keys() - present):
            del files[key]
        missing = {path for path in names if listing.at(path) is None}
        names = {
            path: msgspec.structs.replace(name, missing=path in missing)
            for path, name in names.items()
        }
        for path in self._missed_names.gone(missing):
            del names[path]
        return Registry(names, files, count), new

    def _recognised(self, known: Known, file: FileInfo) -> Known | None:
        """The known file, if it is the one of that identity; None when that is a new one which got
        the identity after the known one was deleted."""
        begun = self._beginning_of(file, known.head.length)
        if begun is None:
            return known
        if known.born_ns and begun.born_ns != known.born_ns:
            return None
        if not known.head.length or begun.head == known.head:
            return known
        # Born at the same instant, it was only written anew.
        return msgspec.structs.replace(known, head=Mark()) if known.born_ns else None

    def _with_beginning(self, known: Known, file: FileInfo) -> Known:
        """With how it begins, as soon as it begins."""
        if known.head.length or (known.born_ns and not file.size):
            return known
        begun = self._beginning_of(file, 0)
        return known if begun is None else msgspec.structs.replace(known, **begun._asdict())


def _is_earlier(known: Known, name: Name | None) -> bool:
    """Whether a file was given to the split of a name before the last one was."""
    return name is not None and known.split == name.split and known.turn < name.turn


class _Absences:
    """Counts for how many looks in a row something was missing."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}

    def were(self, key: str) -> bool:
        """Whether it was missing at the last look."""
        return key in self._looks

    def gone(self, missing: set[str]) -> list[str]:
        """Those of what is missing now that were missing so often that they are gone."""
        self._looks = {key: self._looks.get(key, 0) + 1 for key in missing}
        return [key for key, looks in self._looks.items() if looks >= QUIET_LOOKS]
