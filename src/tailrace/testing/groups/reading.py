"""What a simulated session reads: the ledger of a unit, then its records, a few at a time."""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.backend.contract import Backend
from tailrace.group.chunk import Chunk
from tailrace.group.definition import consumer_name
from tailrace.group.holding import Holding
from tailrace.group.reach import read_reach
from tailrace.message import Partition
from tailrace.testing.groups.ground import Ground
from tailrace.topic.ledger import Progress

CHUNK_RECORDS: Final = 8
"""How many records one read gives: few, so that edges happen."""


class Found(NamedTuple):
    """What came of a read: nothing, or a chunk; `dry` where no more is there now, `end` where no
    more will come."""

    chunk: Chunk | None
    dry: bool
    end: int | None


def load_holding(
    backend: Backend, group: str, partition: Partition, epoch: int, attempts: int
) -> Holding:
    """What a session has of a unit that it was granted, by the ledger."""
    return Holding(
        partition,
        epoch,
        Progress.load(backend.table, consumer_name(group), partition),
        group=group,
        attempts=attempts,
        records_max=64,
        reach=read_reach(backend.table, group, str(partition)),
        end=backend.log.bounds(partition).end,
    )


def read_some(ground: Ground, partition: Partition, start: int) -> Found:
    """The next records from `start` on."""
    bounds = ground.log.bounds(partition)
    records = ground.records.get(partition, ())
    found = [record for record in records if record.offset >= start][:CHUNK_RECORDS]
    dry = len(found) < CHUNK_RECORDS
    following = bounds.end if dry else found[-1].offset + 1
    chunk = None
    if following > start:
        offsets, keys = [r.offset for r in found], [r.key for r in found]
        chunk = Chunk.listed(partition, start, following, offsets, keys)
    return Found(chunk, dry, bounds.end if dry and bounds.sealed else None)
