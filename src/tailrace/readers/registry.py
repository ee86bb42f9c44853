"""Which files of a glob are read by which split: what the watching of new files keeps.

A *name* is a path that a split follows, whatever file has it. Every file that was seen under a name
is given to the split of that name, in turn; so none is left out, however often it is renamed, and
none is read twice. A file is known by its identity and by how it begins: a renamed one is not taken
for new, and a new one that got the identity of a deleted one is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from tailrace.readers.files import FileInfo, Listing
from tailrace.readers.place import Mark

QUIET_LOOKS: Final = 3
"""So many looks in a row must find the same before a file counts as gone, or as whole.

A directory that is read while a file is renamed in it may show the file under no name at all; and
who writes a file goes on for a while after it was renamed.
"""


class Name(msgspec.Struct, frozen=True, array_like=True):
    """Who follows a name, and the turn of the last file that was given to it."""

    split: str
    turn: int


class Known(msgspec.Struct, frozen=True, array_like=True):
    """A file: the split that reads it, which of the files of that split it is, how it begins."""

    split: str
    turn: int
    head: Mark


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


class Census:
    """Compares what a look finds to what is known, look by look.

    `head_of` gives how a file begins, by so many bytes or, for 0, by as many as there are to be
    known; None when it is gone.
    """

    def __init__(self, registry: Registry, head_of: Callable[[FileInfo, int], Mark | None]) -> None:
        self.registry = registry
        self._head_of = head_of
        self._missed_files = _Absences()
        self._missed_names = _Absences()

    def take(
        self,
        listing: Listing,
        is_due: Callable[[FileInfo], bool],
        held: Collection[tuple[int, int]] = (),
        rewritten: Collection[tuple[int, int]] = (),
    ) -> tuple[Registry, list[tuple[str, FileInfo]]]:
        """What is to be known now, and the files with new names, each with its new split's id.

        Files with new names that are not due yet are left for another look. Those that are `held`
        open are certainly what they were; those that were `rewritten` begin otherwise than before.
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
            if known is not None and (file.identity in held or self._is_same(known, file)):
                if file.identity in rewritten:
                    known = msgspec.structs.replace(known, head=Mark())
                files[key] = self._with_head(known, file)
                continue
            if name is not None:
                name = Name(name.split, name.turn + 1)
            elif is_due(file):
                count += 1
                name = Name(f"follow:{count}:{file.path}", 0)
                new.append((name.split, file))
            else:
                continue
            names[file.path] = name
            files[key] = self._with_head(Known(name.split, name.turn, Mark()), file)
        present = {_key(file.device, file.inode) for file in listing}
        for key in self._missed_files.gone(files.keys() - present):
            del files[key]
        for path in self._missed_names.gone({path for path in names if listing.at(path) is None}):
            del names[path]
        return Registry(names, files, count), new

    def _is_same(self, known: Known, file: FileInfo) -> bool:
        """Whether a file of a known identity is the known file, and not a new one that got its
        identity after it was deleted."""
        if not known.head.length:
            return True
        return self._head_of(file, known.head.length) in (known.head, None)

    def _with_head(self, known: Known, file: FileInfo) -> Known:
        """With how it begins, as soon as it begins."""
        if known.head.length or not file.size:
            return known
        head = self._head_of(file, 0)
        return known if head is None else msgspec.structs.replace(known, head=head)


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
