"""Which files of a glob are read by which split: what the watching of new files keeps.

A *name* is a path that a split follows, whatever file has it. A file is known by its identity and
by how it begins, so a renamed one is not taken for new, and a new one that got the identity of a
deleted one is. Only what is stored here decides who reads a file, so no file is read twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.readers.files import FileInfo, Listing
from tailrace.readers.place import Mark

QUIET_LOOKS: Final = 3
"""So many looks in a row must find the same before a file counts as gone, or as whole.

A directory that is read while a file is renamed in it may show the file under no name at all; and
who writes a file goes on for a while after it was renamed.
"""


class Known(msgspec.Struct, frozen=True, array_like=True):
    """A file that is read by a split."""

    split: str
    head: Mark


class Registry(msgspec.Struct, frozen=True):
    """`names` maps paths to the splits that follow them, `files` identities to what is known of
    them. `count` is how many splits were ever made."""

    names: dict[str, str] = {}
    files: dict[str, Known] = {}
    count: int = 0

    def owner(self, file: FileInfo) -> str | None:
        """The split that reads a file."""
        known = self.files.get(_key(file))
        return None if known is None else known.split


def _key(file: FileInfo) -> str:
    return f"{file.device}:{file.inode}"


class Census:
    """Compares what a look finds to what is known, look by look."""

    def __init__(self, registry: Registry, head_of: Callable[[FileInfo, int], Mark | None]) -> None:
        self.registry = registry
        self._head_of = head_of
        self._seen: dict[str, FileInfo] = {}
        self._missed_files = _Absences()
        self._missed_names = _Absences()

    def take(
        self, listing: Listing, is_due: Callable[[FileInfo], bool]
    ) -> tuple[Registry, list[tuple[str, FileInfo]]]:
        """What is to be known now, and the files with new names, each with its new split's id.

        Files with new names that are not due yet are left for another look.
        """
        names, files = dict(self.registry.names), dict(self.registry.files)
        count = self.registry.count
        new: list[tuple[str, FileInfo]] = []
        for file in listing:
            key = _key(file)
            known = files.get(key)
            if known is not None and self._is_same(key, known, file):
                files[key] = self._with_head(known, file)
                continue
            split = names.get(file.path)
            if split is None:
                if not is_due(file):
                    continue
                count += 1
                split = f"follow:{count}:{file.path}"
                names[file.path] = split
                new.append((split, file))
            files[key] = self._with_head(Known(split, Mark()), file)
        self._seen = {_key(file): file for file in listing}
        for key in self._missed_files.gone(files.keys() - self._seen.keys()):
            del files[key]
        for path in self._missed_names.gone({path for path in names if listing.at(path) is None}):
            del names[path]
        return Registry(names, files, count), new

    def _is_same(self, key: str, known: Known, file: FileInfo) -> bool:
        """Whether a file of a known identity is the known file. Looked at only where it may not
        be: at first, under another name, or shorter than before."""
        seen = self._seen.get(key)
        if seen is not None and seen.path == file.path and seen.size <= file.size:
            return True
        return self._head_of(file, known.head.length) in (known.head, None)

    def _with_head(self, known: Known, file: FileInfo) -> Known:
        """With how it begins, as soon as it begins."""
        if known.head.length or not file.size:
            return known
        head = self._head_of(file, 0)
        return known if head is None else Known(known.split, head)


class _Absences:
    """Counts for how many looks in a row something was missing."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}

    def gone(self, missing: set[str]) -> list[str]:
        """Those of what is missing now that were missing so often that they are gone."""
        self._looks = {key: self._looks.get(key, 0) + 1 for key in missing}
        return [key for key, looks in self._looks.items() if looks >= QUIET_LOOKS]
