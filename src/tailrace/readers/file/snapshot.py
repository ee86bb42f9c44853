"""The files found by one poll, with the registry that was stored for them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tailrace.readers.file.files import FileInfo, Listing, OpenFile
from tailrace.readers.file.registry import FileRegistry


class FileSnapshot:
    """The files that a poll found, after the watch split stored which split reads which file.

    All splits read by the newest snapshot only, so they act on the same files.
    """

    def __init__(self, number: int, listing: Listing, registry: FileRegistry) -> None:
        self.number = number
        self.listing = listing
        self._registry = registry
        self._by_split = registry.by_split()

    def is_known(self, file: FileInfo, split: str, generation: int) -> bool:
        """True if a file is that generation of the split, and not a file that reuses its inode."""
        known = self._registry.known(file)
        return known is not None and known.is_at(split, generation)

    def is_same_file(self, file: FileInfo, opened: OpenFile) -> bool:
        """True if an open file is the one that was listed, and not one that replaced it since."""
        known = self._registry.known(file)
        if known is None or opened.identity != file.identity:
            return False
        return known.head.matches(os.pread(opened.descriptor, known.head.length, 0))

    def is_fresh(self, file: FileInfo) -> bool:
        """True if a file took a name that no file had."""
        known = self._registry.known(file)
        return known is not None and known.fresh

    def is_followed(self, path: str, split: str) -> bool:
        """True if the split follows that path."""
        name = self._registry.names.get(path)
        return name is not None and name.split == split

    def later_files(self, split: str, generation: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield the generations and identities of the split's files after a generation."""
        return (file for file in self._by_split.get(split, ()) if file[0] > generation)
