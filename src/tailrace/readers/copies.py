"""Files that are copies of followed ones: rotation by copying, by compressing, by moving elsewhere.

Such a rotation makes a new file of what was read already, and then cuts the old one short or
deletes it. The new file is then read on from where the old one was read to. A copy whose original
stays as it is, is a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from tailrace.readers.files import FileInfo, Listing, OpenFile
from tailrace.readers.place import Place
from tailrace.readers.registry import QUIET_LOOKS
from tailrace.readers.verdict import checksum, may_hold


class Followed(Protocol):
    """Who follows a file."""

    @property
    def place(self) -> Place:
        """How far it was read."""

    def is_gone(self, listing: Listing) -> bool:
        """Whether the file is there no more, or is shorter than what was read."""

    def is_drained(self, listing: Listing) -> bool:
        """Whether nothing more will be read of a file that is gone."""


class Newcomers:
    """Decides, look by look, where the reading of a new file begins."""

    def __init__(self, patient: bool) -> None:
        self._patient = patient
        self._looks: dict[FileInfo, int] = {}

    def place_of(
        self, file: FileInfo, opened: OpenFile, listing: Listing, followed: Iterable[Followed]
    ) -> Place | None:
        """Where to begin; None when that cannot be told yet."""
        looks = self._looks[file] = self._looks.pop(file, 0) + 1
        patient = self._patient and looks < QUIET_LOOKS
        best = Place(file.path, file.device, file.inode)
        for original in followed:
            place = original.place
            gone = [*place.past]
            is_gone = original.is_gone(listing)
            same = (place.device, place.inode) == file.identity
            if same or (is_gone and original.is_drained(listing)):
                gone.append(place)
            elif (is_gone or (patient and place.offset)) and may_hold(opened, place):
                return None
            for each in gone:
                if each.offset > best.offset and checksum(opened, each.offset) == each.checksum:
                    best = msgspec.structs.replace(
                        each, path=file.path, device=file.device, inode=file.inode, turn=0, past=()
                    )
        return best

    def forget(self, listing: Listing) -> None:
        """Forget what is not there as it was."""
        present = set(listing)
        self._looks = {file: looks for file, looks in self._looks.items() if file in present}
