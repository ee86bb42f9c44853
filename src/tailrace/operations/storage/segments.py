"""Segments, the files of partitions: list, show and verify them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tailrace.backend.capabilities import HasSegments, SegmentInfo, segments_of
from tailrace.clock import utc_time
from tailrace.errors import OutOfRange
from tailrace.hub.hub import Hub
from tailrace.log.index import BatchEntry
from tailrace.message import Partition
from tailrace.operations.storage.storage_use import segment_files
from tailrace.operations.topic.lookup import find_topic

BATCHES_SHOWN: Final = 20
"""Number of batches of a segment that are shown, the newest ones."""


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A segment: its offsets and contents. Only the active segment grows."""

    partition: str
    base: int
    end: int
    messages: int
    bytes: int
    active: bool
    compacted: bool

    @property
    def state(self) -> str:
        """The state of the segment, in one word."""
        return "active" if self.active else "compacted" if self.compacted else "closed"


@dataclass(frozen=True, slots=True)
class FileSummary:
    """A file of a segment, and its length, which may exceed the committed length."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """Records that were committed together: their offsets, and their bytes in the file."""

    first: int
    last: int
    position: int
    bytes: int
    oldest: datetime
    newest: datetime
    appended: datetime
    crc: str


@dataclass(frozen=True, slots=True)
class SegmentDetail:
    """A segment with its files and its newest batches, `batches` in all."""

    segment: SegmentSummary
    files: tuple[FileSummary, ...]
    batches: int
    newest: tuple[BatchSummary, ...]


@dataclass(frozen=True, slots=True)
class DamageReport:
    """Committed records that can no longer be read."""

    partition: str
    first: int
    last: int
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification: what was checked, and the damage."""

    partitions: int
    batches: int
    messages: int
    bytes: int
    damages: tuple[DamageReport, ...]


def list_segments(hub: Hub, where: str | None) -> list[SegmentSummary]:
    """List the segments of the hub, of a topic (`orders`) or of a partition (`orders/1.7`).

    `NotSupported` if the backend has no segments.
    """
    log = segments_of(hub.backend, "list segments")
    return [
        _summary(partition, info)
        for partition in partitions_in(hub, where)
        for info in log.segments(partition)
    ]


def show_segment(hub: Hub, partition: Partition, offset: int | None) -> SegmentDetail:
    """Return the segment that holds an offset, or the newest one. Raise `OutOfRange` if none."""
    log = segments_of(hub.backend, "show a segment")
    _check_partition(hub, partition)
    segments = log.segments(partition)
    start, end, _ = log.bounds(partition)
    at = end - 1 if offset is None else offset
    holding = [info for info in segments if info.base <= at < info.end_offset]
    if not holding:
        raise OutOfRange(str(partition), at if offset is not None else end, start, end)
    info = holding[-1]
    batches, count = _newest_batches(log, partition, info)
    files = segment_files(info)
    return SegmentDetail(
        segment=_summary(partition, info),
        files=tuple(FileSummary(str(file), file.stat().st_size) for file in files),
        batches=count,
        newest=tuple(_batch(entry) for entry in batches),
    )


def verify(
    hub: Hub, where: str | None, progress: Callable[[int], None] = lambda _bytes: None
) -> Verification:
    """Read every committed record of the hub, a topic or a partition, and report damage.

    `progress` is called with the number of bytes read.
    """
    log = segments_of(hub.backend, "verify segments")
    partitions = list(partitions_in(hub, where))
    batches = messages = size = 0
    damages: list[DamageReport] = []
    for partition in partitions:
        for entry, damage in log.verify(partition):
            if entry is not None:
                batches += 1
                messages += entry.records
                size += entry.bytes
                progress(size)
            if damage is not None:
                offsets = damage.first, damage.last
                damages.append(DamageReport(str(partition), *offsets, damage.file, damage.reason))
    return Verification(len(partitions), batches, messages, size, tuple(damages))


def partitions_in(hub: Hub, where: str | None) -> Iterator[Partition]:
    """Yield the partitions of the hub (None), of a topic, or the named partition."""
    if where is not None and "/" in where:
        yield _check_partition(hub, Partition.parse(where))
        return
    for name in hub.topics() if where is None else [where]:
        for info in find_topic(hub, name).storage_topics:
            for number in range(info.partitions):
                yield Partition(name, info.index, number)


def _check_partition(hub: Hub, partition: Partition) -> Partition:
    topic = find_topic(hub, partition.topic)
    return topic.view.definition.check_held(partition)


def _newest_batches(
    log: HasSegments, partition: Partition, info: SegmentInfo
) -> tuple[list[BatchEntry], int]:
    newest: list[BatchEntry] = []
    count = 0
    for segment, entries in log.entries(partition, info.base):
        if segment.base != info.base:
            break
        count += len(entries)
        newest = (newest + entries)[-BATCHES_SHOWN:]
    return newest, count


def _summary(partition: Partition, info: SegmentInfo) -> SegmentSummary:
    return SegmentSummary(
        partition=str(partition),
        base=info.base,
        end=info.end_offset,
        messages=info.records,
        bytes=info.bytes,
        active=info.active,
        compacted=info.generation > 0,
    )


def _batch(entry: BatchEntry) -> BatchSummary:
    return BatchSummary(
        first=entry.base,
        last=entry.base + entry.records - 1,
        position=entry.position,
        bytes=entry.bytes,
        oldest=utc_time(entry.first_timestamp),
        newest=utc_time(entry.last_timestamp),
        appended=utc_time(entry.appended_ms),
        crc=f"{entry.crc:08x}",
    )
