"""What readers are told of committed bytes that are not what was committed."""

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
    """What to raise for an index that no longer says which bytes are `start` and on."""
    if isinstance(damage, FileNotFoundError):
        return damage
    if damage.next_offset is not None and start < damage.next_offset:
        end = damage.next_offset
    file = str(segment.log_path.with_suffix(".index"))
    return CorruptBatch(str(partition), start, end - 1, file, damage.reason)


def gone(partition: Partition, first: int, last: int, error: FileNotFoundError) -> CorruptBatch:
    """What to raise for a file that should be there."""
    return CorruptBatch(str(partition), first, last, str(error.filename), "the file is gone")


def corrupt(partition: Partition, segment: Segment, damage: Damage) -> CorruptBatch:
    """What to raise for a batch that is not what was committed."""
    entry = damage.entry
    return CorruptBatch(
        str(partition),
        entry.base,
        entry.base + entry.records - 1,
        str(segment.log_path),
        damage.reason,
    )
