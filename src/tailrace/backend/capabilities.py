"""Optional abilities of a backend: what some backends can do beyond the contract.

`tailrace.backend.contract` is what every backend does. Each protocol here is something that a
backend, or its log, does if it has the methods. Callers check with ``isinstance`` and do without,
or call `segments_of` or `compaction_of`, which raise `NotSupported` with the name of the operation
and of the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from tailrace.backend.contract import Backend, Log
from tailrace.errors import CorruptBatch, NotSupported
from tailrace.log.index import BatchEntry
from tailrace.log.segment import Segment
from tailrace.message import Partition


class SegmentInfo(NamedTuple):
    """A segment of a partition. The active segment, which takes appends, ends where the partition
    ends. A `generation` above 0 means that the segment was compacted."""

    log_path: Path
    base: int
    end_offset: int
    bytes: int
    records: int
    index_bytes: int
    active: bool
    generation: int


class Extent(Protocol):
    """Some stored batches of a partition, which a process without an open hub can read.

    An extent can be pickled. Compaction replaces files, so an extent is valid while nothing
    compacts its range: above the low-water mark of a registered consumer.
    """

    @property
    def start(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """The first offset after the last record."""

    @property
    def log_path(self) -> str:
        """The file that holds the records."""

    @property
    def entries(self) -> bytes:
        """The batch entries, as rows of `tailrace.log.index.ENTRY`."""

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records from offset `start` up to, not including, `end`, about 1 MB at a time.

        `CorruptBatch` for damaged bytes and for a missing file; intact batches before the damage
        are yielded first.
        """


@runtime_checkable
class HasSegments(Log, Protocol):
    """A log that keeps its records in segment files, which other processes can read."""

    def segments(self, partition: Partition) -> list[SegmentInfo]:
        """Return the segments of a partition, oldest first."""

    def entries(
        self, partition: Partition, start: int = 0
    ) -> Iterator[tuple[Segment, list[BatchEntry]]]:
        """Yield all batch entries from an offset on, in runs of neighbours within one segment."""

    def extents(self, partition: Partition, start: int, end: int) -> Sequence[Extent]:
        """Return the batches that hold committed records from `start` up to `end`.

        One extent for each segment that has any. A start beyond the end of the partition is
        `OutOfRange`.
        """

    def verify(
        self, partition: Partition
    ) -> Iterator[tuple[BatchEntry | None, CorruptBatch | None]]:
        """Yield every batch of the partition with its damage, if any.

        Damage without a batch is damage of an index, which hides the batches it listed, or of a
        file that cannot be read, which ends the iteration.
        """


class Compacted(NamedTuple):
    """The result of a compaction. `segments` counts the full segments below the mark, `rewritten`
    those of them that became smaller."""

    segments: int = 0
    rewritten: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def plus(self, other: Compacted) -> Compacted:
        """Return the sum of two results."""
        return Compacted(*map(sum, zip(self, other, strict=True)))


@runtime_checkable
class Compacts(Protocol):
    """A backend that can drop consumed records but the last of every key."""

    def compact(self, partition: Partition, below: Callable[[], int]) -> Compacted:
        """Compact every full segment wholly below an offset: keep the last record of every key.

        `below` is called again for each segment, within the commit; it returns the offset below
        which no consumer needs the dropped records, as `tailrace.topic.consumers.low_mark` does.
        `Busy` while another process compacts the partition.
        """


class HubInfo(NamedTuple):
    """The identity and policy that a hub in a directory stores."""

    hub_id: str
    format: int
    sync: str
    incarnation: int
    created_ms: int
    gaps: tuple[str, ...]
    """Batches that the last crash of the machine lost, in words, until they are accepted."""


class DirectoryUse(NamedTuple):
    """The files of a hub's directory beside its segments, and the disk that they are on."""

    database_bytes: int
    wal_bytes: int
    has_reserve: bool
    disk_free_bytes: int
    disk_percent: int


@runtime_checkable
class InDirectory(Protocol):
    """A backend that keeps a hub in a directory of this host."""

    @property
    def info(self) -> HubInfo:
        """The identity and policy of the hub, as they were when it was opened."""

    def directory_use(self) -> DirectoryUse:
        """Measure the files of the directory and its disk now."""

    def accept_gaps(self) -> None:
        """Remove the gaps of `info.gaps` from the hub, once an operator has dealt with them."""


def segments_of(backend: Backend, operation: str) -> HasSegments:
    """Return the log of a backend with its segments; `NotSupported` if it keeps none.

    `operation` names, in the error, what the caller was asked to do: ``"list segments"``.
    """
    log = backend.log
    if not isinstance(log, HasSegments):
        raise NotSupported(operation, backend.name, "its log has no segment files")
    return log


def compaction_of(backend: Backend, operation: str) -> Compacts:
    """Return the backend as one that compacts; `NotSupported` if it cannot."""
    if not isinstance(backend, Compacts):
        raise NotSupported(operation, backend.name, "its log has no segment files")
    return backend
