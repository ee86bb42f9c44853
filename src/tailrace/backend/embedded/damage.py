"""The errors of readers for committed bytes that are damaged or missing."""

from __future__ import annotations

from tailrace.errors import CorruptBatch
from tailrace.log.index import DamagedIndex
from tailrace.log.segment import Damage, Segment
from tailrace.message import Partition


def hidden(
    partition: Partition,
    segment: Segment,
    start: int,
    end: int,
    damage: DamagedIndex | FileNotFoundError,
) -> CorruptBatch | FileNotFoundError:
    """Return the error for an index that no longer tells which bytes hold `start` and later."""
    if isinstance(damage, FileNotFoundError):
        return damage
    if damage.next_offset is not None and start < damage.next_offset:
        end = damage.next_offset
    file = str(segment.log_path.with_suffix(".index"))
    return CorruptBatch(str(partition), start, end - 1, file, damage.reason)


def missing_file(
    partition: Partition, first: int, last: int, error: FileNotFoundError
) -> CorruptBatch:
    """Return the error for a file that is missing."""
    return CorruptBatch(str(partition), first, last, str(error.filename), "the file is missing")


def corrupt(partition: Partition, segment: Segment, damage: Damage) -> CorruptBatch:
    """Return the error for a batch whose bytes are not the committed ones."""
    entry = damage.entry
    return CorruptBatch(
        str(partition),
        entry.base,
        entry.base + entry.records - 1,
        str(segment.log_path),
        damage.reason,
    )
