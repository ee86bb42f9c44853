"""The segments of a partition, where the backend has any, and the files of a segment."""

from __future__ import annotations

from pathlib import Path

from tailrace.backend.capabilities import HasSegments, SegmentInfo
from tailrace.hub.hub import Hub
from tailrace.message import Partition


def segments_in(hub: Hub, partition: Partition) -> list[SegmentInfo]:
    """Return the segments of a partition, oldest first; none if the backend keeps no segments."""
    log = hub.backend.log
    return log.segments(partition) if isinstance(log, HasSegments) else []


def segment_files(info: SegmentInfo) -> list[Path]:
    """Return the files of a segment that exist: index, records, positions."""
    files = (info.log_path.with_suffix(ending) for ending in (".index", ".log", ".positions"))
    return [file for file in files if file.exists()]


def missing_bytes(info: SegmentInfo) -> int:
    """Return the number of committed bytes that the file of a segment does not have."""
    try:
        return max(0, info.bytes - info.log_path.stat().st_size)
    except FileNotFoundError:
        return info.bytes
