"""The progress of a writer by namespace, from the keys of the commit log and its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.pipeline.lookup import FoundWriter, commit_log, find_pipeline, read_ledger
from tailrace.pipeline.catalog import RegisteredPipeline
from tailrace.pipeline.transform.namespace import ALL, NamespaceFilter, distinct
from tailrace.pipeline.writing.writer_ledger import WriterName
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within


@dataclass(frozen=True, slots=True)
class NamespaceOffsets:
    """The progress of a writer in one namespace of a partition.

    `acknowledged` is the highest acknowledged offset of the namespace, `waiting` the number of
    records that are not acknowledged. `holes` are the first offsets that are not acknowledged below
    the highest acknowledged offset of the partition.
    """

    writer: str
    partition: str
    namespace: str
    acknowledged: int | None
    waiting: int
    holes: tuple[int, ...]


HOLES_SHOWN: Final = 10
"""Number of holes of a namespace that are listed."""


def namespace_offsets(hub: Hub, name: str) -> list[NamespaceOffsets]:
    """Return the progress of every writer of a pipeline, by partition and namespace.

    This reads the whole commit log. Namespaces that a writer's filter excludes are omitted.
    """
    pipeline = find_pipeline(hub, name)
    rows: list[NamespaceOffsets] = []
    for writer in pipeline.writers:
        rows += _of_writer(hub, pipeline, writer)
    return rows


def _of_writer(hub: Hub, pipeline: RegisteredPipeline, writer: str) -> list[NamespaceOffsets]:
    log = commit_log(hub, pipeline)
    if log is None:
        return []
    found = FoundWriter(WriterName(pipeline.name, writer), pipeline, pipeline.writers[writer])
    kept = found.registered.namespace
    wanted = ALL if kept == str(ALL) else NamespaceFilter.parse(kept)
    rows = []
    for where, progress in read_ledger(hub, found.name, log).progress.items():
        for namespace, tally in sorted(_tallies(hub, where, progress).items()):
            if wanted.matches(namespace):
                rows.append(
                    NamespaceOffsets(
                        str(found.name),
                        str(where),
                        namespace,
                        tally.highest if tally.highest >= 0 else None,
                        tally.waiting,
                        tuple(tally.holes),
                    )
                )
    return rows


@dataclass(slots=True)
class _NamespaceTally:
    highest: int = -1
    waiting: int = 0
    holes: list[int] = field(default_factory=list)


def _tallies(hub: Hub, where: Partition, progress: Progress) -> dict[str, _NamespaceTally]:
    log = hub.backend.log
    bounds = log.bounds(where)
    ranges = _AcknowledgedRanges.of(progress)
    tallies: dict[str, _NamespaceTally] = {}
    for batch in batches_within(log, where, bounds.start, bounds.end):
        offsets: npt.NDArray[np.int64] = batch["offset"].to_numpy()
        acked = ranges.mask(offsets)
        indices, namespaces = distinct(batch["key"])
        for index, namespace in enumerate(namespaces):
            mine = indices == index
            tally = tallies.setdefault(namespace, _NamespaceTally())
            left = offsets[mine & ~acked]
            tally.highest = max(tally.highest, int(offsets[mine & acked].max(initial=-1)))
            tally.waiting += len(left)
            holes = left[left < progress.highest].tolist()
            tally.holes += holes[: HOLES_SHOWN - len(tally.holes)]
    return tallies


class _AcknowledgedRanges(NamedTuple):
    """The acknowledged offsets of a partition, as sorted ranges."""

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, progress: Progress) -> _AcknowledgedRanges:
        ranges = np.array([(0, progress.mark), *progress.ranges()], np.int64)
        return cls(ranges[:, 0], ranges[:, 1])

    def mask(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return True for each offset that is acknowledged."""
        within = np.searchsorted(self.starts, offsets, "right") - 1
        acked: npt.NDArray[np.bool_] = offsets < self.ends[within]
        return acked
