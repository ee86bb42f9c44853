"""Files that are copies of followed ones: rotation by copying and by compressing.

Such a rotation makes a new file of what was read already, and then cuts the old one short, or
deletes it once it is compressed. The new file is then read on from where the old one was read to.

To take a new file for a copy is to pass over what it holds, so all must speak for it: its content,
its name, which is the original's with something added (``users.jsonl.1.gz`` of ``users.jsonl``),
and that the original is cut short or gone. Any other file that begins as one that is gone is a file
of its own, and so is a copy whose original stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

import msgspec

from tailrace.readers.files import FileInfo, Listing, OpenFile
from tailrace.readers.place import Place
from tailrace.readers.registry import QUIET_LOOKS
from tailrace.readers.verdict import checksum, may_hold

_ADDED: Final = re.compile(r"([.-]\d[\dT:_-]*|\.old|\.bak|\.gz)+$")
"""What rotation adds to a name: ``.1``, ``-20260131``, ``.2026-01-31_23-59-59``, ``.gz``."""


class Followed(Protocol):
    """Who follows a file."""

    @property
    def name(self) -> str:
        """The path that it has, or had before it was renamed."""

    @property
    def place(self) -> Place:
        """How far it was read."""

    def is_gone(self, listing: Listing) -> bool:
        """Whether the file is there no more, or is shorter than what was read."""

    def has_nameless(self, listing: Listing) -> bool:
        """Whether files that are there no more are still to be read after this one."""

    def is_drained(self, listing: Listing) -> bool:
        """Whether nothing more will be read of a file that is gone."""


class Newcomers:
    """Decides, look by look, where the reading of a new file begins."""

    def __init__(self, patient: bool) -> None:
        self._patient = patient
        self._looks: dict[FileInfo, int] = {}

    def place_of(
        self,
        file: FileInfo,
        opened: OpenFile,
        listing: Listing,
        followed: Iterable[Followed],
        held: Collection[tuple[int, int]],
    ) -> Place | None:
        """Where to begin; None when that cannot be told yet."""
        looks = self._looks[file] = self._looks.pop(file, 0) + 1
        patient = self._patient and looks < QUIET_LOOKS
        best = Place(file.path, file.device, file.inode)
        for original in followed:
            place = original.place
            originals = [place] if place.identity == file.identity and file.identity in held else []
            if is_rotated_name(file.path, original.name):
                if original.has_nameless(listing):
                    return None
                originals += place.past
                is_gone = original.is_gone(listing)
                if is_gone and original.is_drained(listing):
                    originals.append(place)
                elif (is_gone or (patient and place.offset)) and may_hold(opened, place):
                    return None
            for each in originals:
                if each.offset > best.offset and checksum(opened, each.offset) == each.checksum:
                    best = msgspec.structs.replace(
                        each, path=file.path, device=file.device, inode=file.inode, turn=0, past=()
                    )
        return best

    def forget(self, listing: Listing) -> None:
        """Forget what is not there as it was."""
        present = set(listing)
        self._looks = {file: looks for file, looks in self._looks.items() if file in present}


def is_rotated_name(path: str, original: str) -> bool:
    """Whether a path is another one with what rotation adds: a number, a time, a compression.

    ``users.jsonl.2`` is of ``users.jsonl``; compressed, it is of ``users.jsonl.1`` too.
    """
    added = path.removeprefix(original)
    if added != path:
        return _ADDED.fullmatch(added) is not None
    return path.endswith(".gz") and _ADDED.sub("", path) == _ADDED.sub("", original)
