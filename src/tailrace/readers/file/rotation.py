"""Recognise copies of followed files, which log rotation makes by copying or compressing.

Such a rotation creates a new file with bytes that were read already. Then it truncates the
original, or deletes it once it is compressed. The new file is read from the position in the
original.

Treating a new file as a copy means skipping its first bytes, so three things must hold: the content
is the same, the name is the original's with a rotation suffix (``users.jsonl.1.gz`` for
``users.jsonl``), and the original was truncated or removed. A file that only begins like a removed
file is a new file; so is a copy whose original stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

import msgspec

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import FileInfo, Listing, OpenFile
from tailrace.readers.file.registry import QUIET_POLLS
from tailrace.readers.file.rewrite_check import checksum, may_contain

_SUFFIXES: Final = re.compile(r"([.-]\d[\dT:_-]*|\.old|\.bak|\.gz)+$")
"""Suffixes that rotation adds: ``.1``, ``-20260131``, ``.2026-01-31_23-59-59``, ``.gz``."""


class FollowedFile(Protocol):
    """A file that a split copies or follows."""

    @property
    def name(self) -> str:
        """The path of the file, or its path before it was renamed."""

    @property
    def position(self) -> FilePosition:
        """How far the file was read."""

    def is_removed(self, listing: Listing) -> bool:
        """True if the file was removed, or is shorter than the part that was read."""

    def has_unlinked_files(self, listing: Listing) -> bool:
        """True if files without a name are still to be read after this one."""

    def is_drained(self, listing: Listing) -> bool:
        """True if a removed file was read to its end."""


class StartFinder:
    """Decides, poll by poll, at which position the reading of a new file starts.

    A `patient` finder waits some polls for the original of a possible copy to be truncated.
    """

    def __init__(self, patient: bool) -> None:
        self._patient = patient
        self._polls: dict[FileInfo, int] = {}

    def find(
        self,
        file: FileInfo,
        opened: OpenFile,
        listing: Listing,
        followed: Iterable[FollowedFile],
        held: Collection[tuple[int, int]],
    ) -> FilePosition | None:
        """Return the start position of a new file; None if it cannot be decided yet.

        `held` are the identities of the files that are held open.
        """
        polls = self._polls[file] = self._polls.pop(file, 0) + 1
        patient = self._patient and polls < QUIET_POLLS
        best = FilePosition(file.path, file.device, file.inode)
        for original in followed:
            position = original.position
            same_file = position.identity == file.identity and file.identity in held
            originals = [position] if same_file else []
            if is_rotated_name(file.path, original.name):
                if original.has_unlinked_files(listing):
                    return None
                originals += position.past
                is_removed = original.is_removed(listing)
                if is_removed and original.is_drained(listing):
                    originals.append(position)
                elif (is_removed or (patient and position.offset)) and may_contain(
                    opened, position
                ):
                    return None
            for each in originals:
                if each.offset > best.offset and checksum(opened, each.offset) == each.checksum:
                    best = msgspec.structs.replace(
                        each,
                        path=file.path,
                        device=file.device,
                        inode=file.inode,
                        generation=0,
                        past=(),
                    )
        return best

    def forget(self, listing: Listing) -> None:
        """Forget the files that changed or are not listed any more."""
        present = set(listing)
        self._polls = {file: polls for file, polls in self._polls.items() if file in present}


def is_rotated_name(path: str, original: str) -> bool:
    """True if a path is another one plus a rotation suffix: a number, a time, a compression.

    ``users.jsonl.2`` belongs to ``users.jsonl``; compressed, to ``users.jsonl.1`` too.
    """
    added = path.removeprefix(original)
    if added != path:
        return _SUFFIXES.fullmatch(added) is not None
    return path.endswith(".gz") and _SUFFIXES.sub("", path) == _SUFFIXES.sub("", original)
