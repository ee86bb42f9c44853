"""A file that is copied, for those that follow new files meanwhile."""

from __future__ import annotations

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import Listing
from tailrace.readers.file.session_state import FileSessionState


class CopiedFile:
    """A file that is being copied, until the split that follows it takes its place."""

    def __init__(self, state: FileSessionState, position: FilePosition, split: str) -> None:
        self._state = state
        self.name = position.path
        self.position = position
        self._split = split
        self._ended = False

    def is_removed(self, listing: Listing) -> bool:
        """True if the file was removed, or is shorter than the part that was read."""
        return self._state.is_removed(self.position, self._split, listing)

    def has_unlinked_files(self, listing: Listing) -> bool:
        """True if files without a name are still to be read after this one."""
        return self._state.has_unlinked_files(self._split, self.position.generation, listing)

    def is_drained(self, listing: Listing) -> bool:
        """True if the copy has ended."""
        return self._ended

    def end(self) -> None:
        """Record that the copy has ended."""
        self._ended = True
