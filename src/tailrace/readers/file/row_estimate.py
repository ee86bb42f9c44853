"""About how many rows files have, from samples of their starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.readers.file.files import FileInfo, OpenFile, UnreadableFile
from tailrace.readers.file.formats.parquet import row_groups
from tailrace.readers.file.session_state import FileSessionState

_SAMPLE_BYTES: Final = 64 << 10
"""Number of bytes of a file whose lines are counted."""

_SAMPLES_MAX: Final = 16
"""Number of files that are sampled for an estimate."""


def estimate_rows(state: FileSessionState, files: Sequence[FileInfo]) -> int | None:
    """Return about how many rows some files have; None if one is compressed.

    The number is exact for a few Parquet files.
    """
    if any(state.compression_of(file.path) != "none" for file in files):
        return None
    samples = files[:_SAMPLES_MAX]
    rows = sum(_rows_of(state, file) for file in samples)
    sampled_bytes = sum(file.size for file in samples)
    total_bytes = sum(file.size for file in files)
    return round(rows * total_bytes / sampled_bytes) if sampled_bytes else 0


def _rows_of(state: FileSessionState, file: FileInfo) -> float:
    opened = state.open(file.path)
    if opened is None:
        return 0
    try:
        if state.format_of(file.path).grows:
            return _lines_of(opened, file.size)
        return sum(group.rows for group in row_groups(opened))
    except UnreadableFile:
        return 0
    finally:
        opened.close()


def _lines_of(opened: OpenFile, size: int) -> float:
    data = opened.read(0, _SAMPLE_BYTES, size)
    if not data:
        return 0
    is_all = len(data) == size
    lines = data.count(b"\n") + (is_all and not data.endswith(b"\n"))
    return max(lines, 1) * size / len(data)
