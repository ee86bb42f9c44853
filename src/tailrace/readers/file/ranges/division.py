"""How a large file is divided into ranges. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tailrace.readers.file.formats.parquet import RowGroup

RANGES_MAX: Final = 1000
"""The maximum number of ranges of a file. The ranges of a larger file are larger."""


class FileRange(NamedTuple):
    """A part of a file: bytes, or the rows of a Parquet file, from `start` up to `end`."""

    start: int
    end: int


def byte_ranges(size: int, range_bytes: int) -> list[FileRange]:
    """Divide the bytes of a file; no range if it is not larger than one range."""
    if size <= range_bytes:
        return []
    step = max(range_bytes, -(-size // RANGES_MAX))
    return [FileRange(start, min(start + step, size)) for start in range(0, size, step)]


def row_ranges(groups: Sequence[RowGroup], range_bytes: int) -> list[FileRange]:
    """Divide the rows of a Parquet file between row groups; no range if it makes only one."""
    step = max(range_bytes, -(-sum(group.size for group in groups) // RANGES_MAX))
    ranges: list[FileRange] = []
    start = end = size = 0
    for group in groups:
        end += group.rows
        size += group.size
        if size >= step and end > start:
            ranges.append(FileRange(start, end))
            start, size = end, 0
    if end > start:
        ranges.append(FileRange(start, end))
    return ranges if len(ranges) > 1 else []
