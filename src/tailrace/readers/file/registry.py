"""The registry of files: which split reads which file. The watch split stores it as its position.

A split follows a *name*, which is a path. Every file that was seen under a name belongs to the
split of that name, numbered by *generation*; so each file is read exactly once, however often it is
renamed. A file is recognised by its identity and its first bytes: a renamed file is not new, and a
new file that reuses the inode of a deleted one is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tailrace.readers.file.file_position import FilePosition, Fingerprint
from tailrace.readers.file.files import FileInfo, Listing

QUIET_POLLS: Final = 3
"""Number of polls in a row that must agree before a file counts as removed, or as complete.

A directory that is listed during a rename may show the file under neither name, and a program may
write to a file for a while after it was renamed.
"""


class FileStart(NamedTuple):
    """The first bytes of a file and its creation time (0 if the system does not record it)."""

    head: Fingerprint
    born_ns: int


class FollowedName(msgspec.Struct, frozen=True, array_like=True):
    """The split that follows a name, and the newest generation of its files.

    `missing` is true if the last poll found no file with that name.
    """

    split: str
    generation: int
    missing: bool = False


class KnownFile(msgspec.Struct, frozen=True, array_like=True):
    """A file in the registry: the split that reads it, its generation, and its start.

    A `fresh` file took a name that no file had, so it is not a new edition of an earlier file.
    """

    split: str
    generation: int
    head: Fingerprint
    born_ns: int = 0
    fresh: bool = False

    def is_at(self, split: str, generation: int) -> bool:
        """True if this is that generation of the split's files."""
        return (self.split, self.generation) == (split, generation)


class FileRegistry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names by path, and files by identity. `count` is the number of splits created so far.

    `waiting` are files of namespaces that are copied by several splits, by the splits that will
    follow them, until these begin: each with its end at the discovery.
    """

    names: dict[str, FollowedName] = {}
    files: dict[str, KnownFile] = {}
    count: int = 0
    waiting: dict[str, FilePosition] = {}

    def known(self, file: FileInfo) -> KnownFile | None:
        """Return the registered file with the identity of `file`."""
        return self.files.get(_key(file.device, file.inode))

    def by_split(self) -> dict[str, list[tuple[int, tuple[int, int]]]]:
        """Return the generations and identities of each split's files, sorted by generation."""
        found: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        for key, known in self.files.items():
            device, _, inode = key.partition(":")
            found.setdefault(known.split, []).append((known.generation, (int(device), int(inode))))
        for files in found.values():
            files.sort()
        return found


def _key(device: int, inode: int) -> str:
    return f"{device}:{inode}"


ReadStart: TypeAlias = Callable[[FileInfo, int], FileStart | None]
"""Read the first bytes of a file: at most the given number, 0 for a whole fingerprint.

Returns None if the file no longer has its path.
"""


class RegistryUpdater:
    """Updates the registry, poll by poll, with the files that were found."""

    def __init__(self, registry: FileRegistry, read_start: ReadStart) -> None:
        self.registry = registry
        self._read_start = read_start
        self._missing_files = _AbsenceCounter()
        self._missing_names = _AbsenceCounter()

    def update(
        self,
        listing: Listing,
        is_due: Callable[[FileInfo], bool],
        held: Collection[tuple[int, int]] = (),
        rewritten: Collection[tuple[int, int]] = (),
        reserved: Collection[tuple[int, int]] = (),
    ) -> tuple[FileRegistry, list[tuple[str, FileInfo]]]:
        """Return the new registry, and the files with new names, each with the id of its new split.

        A file with a new name that is not due stays unregistered until a later poll. Files that are
        `held` open are certainly the known ones. Files that were `rewritten` have a new start.
        Files that are `reserved` are still to be read, although they may have lost their names.
        """
        names, files = dict(self.registry.names), dict(self.registry.files)
        count = self.registry.count
        new: list[tuple[str, FileInfo]] = []
        for file in listing:
            key = _key(file.device, file.inode)
            known = files.get(key)
            name = names.get(file.path)
            if known is not None and self._missing_files.contains(key) and _is_older(known, name):
                known = None  # The file that has the name now reuses the inode.
            if known is not None:
                is_held = file.identity in held
                known = known if is_held else self._recognise(known, file)
            if known is not None:
                if file.identity in rewritten:
                    known = msgspec.structs.replace(known, head=Fingerprint())
                files[key] = self._with_start(known, file)
                continue
            fresh = name is None or name.missing
            if name is not None:
                name = FollowedName(name.split, name.generation + 1)
            elif is_due(file):
                count += 1
                name = FollowedName(f"follow:{count}:{file.path}", 0)
                new.append((name.split, file))
            else:
                files.pop(key, None)
                continue
            names[file.path] = name
            known = KnownFile(name.split, name.generation, Fingerprint(), fresh=fresh)
            files[key] = self._with_start(known, file)
        present = {_key(*file.identity) for file in listing} | {_key(*each) for each in reserved}
        for key in self._missing_files.count(files.keys() - present):
            del files[key]
        missing = {path for path in names if listing.at(path) is None}
        names = {
            path: msgspec.structs.replace(name, missing=path in missing)
            for path, name in names.items()
        }
        for path in self._missing_names.count(missing):
            del names[path]
        return FileRegistry(names, files, count, self.registry.waiting), new

    def _recognise(self, known: KnownFile, file: FileInfo) -> KnownFile | None:
        """Return the known file if `file` is the same one; None if `file` reuses its inode."""
        start = self._read_start(file, known.head.length)
        if start is None:
            return known
        if known.born_ns and start.born_ns != known.born_ns:
            return None
        if not known.head.length or start.head == known.head:
            return known
        # A file with the same creation time is the same file, rewritten.
        return msgspec.structs.replace(known, head=Fingerprint()) if known.born_ns else None

    def _with_start(self, known: KnownFile, file: FileInfo) -> KnownFile:
        """Return the known file with its start, once the file has any bytes."""
        if known.head.length or (known.born_ns and not file.size):
            return known
        start = self._read_start(file, 0)
        return known if start is None else msgspec.structs.replace(known, **start._asdict())


def _is_older(known: KnownFile, name: FollowedName | None) -> bool:
    """True if a file is not the newest generation of the name."""
    return name is not None and known.split == name.split and known.generation < name.generation


class _AbsenceCounter:
    """Counts the polls in a row in which a key was missing."""

    def __init__(self) -> None:
        self._polls: dict[str, int] = {}

    def contains(self, key: str) -> bool:
        """True if the key was missing in the last poll."""
        return key in self._polls

    def count(self, missing: set[str]) -> list[str]:
        """Count one poll; return the keys that were missing for `QUIET_POLLS` polls."""
        self._polls = {key: self._polls.get(key, 0) + 1 for key in missing}
        return [key for key, polls in self._polls.items() if polls >= QUIET_POLLS]
