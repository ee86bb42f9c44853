"""How far a writer is in each namespace: derived from the keys of the commit log and its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.registered import FoundWriter, commit_log, find_pipeline, read_books
from tailrace.pipeline.books import WriterName
from tailrace.pipeline.namespace import ALL, NamespaceFilter, distinct
from tailrace.pipeline.registry import RegisteredPipeline
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_within


@dataclass(frozen=True, slots=True)
class NamespaceOffsets:
    """A writer's standing in one namespace of a partition.

    `acknowledged` is the highest offset it has acknowledged there, `waiting` counts the records
    that it has not, and `holes` has the first of those that lie below the highest acknowledged
    offset of the whole partition.
    """

    writer: str
    partition: str
    namespace: str
    acknowledged: int | None
    waiting: int
    holes: tuple[int, ...]


HOLES_SHOWN: Final = 10
"""So many holes of a namespace are named."""


def namespace_offsets(hub: Hub, name: str) -> list[NamespaceOffsets]:
    """The standing of all writers of a pipeline, by writer, partition and namespace.

    It reads the whole commit log. Namespaces that a writer's filter leaves out are left out.
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
    for where, progress in read_books(hub, found.name, log).progress.items():
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
class _Tally:
    highest: int = -1
    waiting: int = 0
    holes: list[int] = field(default_factory=list)


def _tallies(hub: Hub, where: Partition, progress: Progress) -> dict[str, _Tally]:
    log = hub.backend.log
    bounds = log.bounds(where)
    held = _Held.of(progress)
    tallies: dict[str, _Tally] = {}
    for batch in batches_within(log, where, bounds.start, bounds.end):
        offsets: npt.NDArray[np.int64] = batch["offset"].to_numpy()
        acked = held.mask(offsets)
        indices, namespaces = distinct(batch["key"])
        for index, namespace in enumerate(namespaces):
            mine = indices == index
            tally = tallies.setdefault(namespace, _Tally())
            left = offsets[mine & ~acked]
            tally.highest = max(tally.highest, int(offsets[mine & acked].max(initial=-1)))
            tally.waiting += len(left)
            holes = left[left < progress.highest].tolist()
            tally.holes += holes[: HOLES_SHOWN - len(tally.holes)]
    return tallies


class _Held(NamedTuple):
    """What is acknowledged, as ranges in order."""

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, progress: Progress) -> _Held:
        ranges = np.array([(0, progress.mark), *progress.ranges()], np.int64)
        return cls(ranges[:, 0], ranges[:, 1])

    def mask(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """For each offset whether it is acknowledged."""
        within = np.searchsorted(self.starts, offsets, "right") - 1
        acked: npt.NDArray[np.bool_] = offsets < self.ends[within]
        return acked
