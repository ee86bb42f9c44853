"""Reconciling the ledger of a writer with its sink, when a process takes the writer over."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tailrace.errors import Error
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets, intersect_ranges
from tailrace.pipeline.writer import RewindRefused, Writer, stream_name
from tailrace.pipeline.writing.plan import PlanKind, acknowledged
from tailrace.pipeline.writing.writer_ledger import WriterLedger


def forget_rewound(ledger: WriterLedger, writer: Writer, hub: Hub) -> None:
    """Rewind the offsets that the sink stores to where an operator rewound the writer."""
    if ledger.rewind is None:
        return
    for text, offset in ledger.rewind.offsets.items():
        try:
            writer.forget(str(ledger.name), _stream(ledger, Partition.parse(text)), offset, hub)
        except RewindRefused as refused:
            refused.partition = text
            raise
    ledger.clear_rewind()


def reconcile(ledger: WriterLedger, writer: Writer, hub: Hub) -> None:
    """Acknowledge the offsets that the sink has applied. The caller commits the ledger.

    For a sink that stores its offsets, exactly these and the skipped offsets are acknowledged.
    Raises `Error` if the stored offsets end before the compacted part of the log, as after a
    restore of the sink from a backup: the records between can no longer be delivered.

    Offsets of the open plan that the sink has and the ledger has not are left out: the attempts of
    the plan find them in the sink, and count their rows.
    """
    for partition, progress in ledger.progress.items():
        held = writer.applied(str(ledger.name), _stream(ledger, partition), hub)
        if held is None:
            continue
        counted = held
        if writer.stores_offsets:
            counted = _counted(ledger, partition, held)
            progress.reset(0)
            progress.merge(ledger.skipped[partition])
        for offsets in counted:
            progress.ack(*offsets)
        if writer.stores_offsets:
            ends = (progress.highest + 1, *(each.end for each in held))
            _check_deliverable(ledger, partition, max(ends))


def _counted(
    ledger: WriterLedger, partition: Partition, held: Sequence[Offsets]
) -> Sequence[Offsets]:
    """Return the ranges of a sink without those of the open plan that no report has counted."""
    plan = ledger.plan
    if plan is None or plan.kind is not PlanKind.BULK:
        return held
    for part in plan.parts:
        if part.where == partition:
            before = acknowledged(ledger.progress[partition], part.offsets)
            known = [each for offsets in before for each in intersect_ranges(held, offsets)]
            below = intersect_ranges(held, Offsets(0, part.start))
            above = intersect_ranges(held, Offsets(part.end, sys.maxsize))
            held = [*below, *known, *above]
    return held


def _check_deliverable(ledger: WriterLedger, partition: Partition, start: int) -> None:
    whole_from = ledger.backend.log.whole_from(partition)
    if start < whole_from:
        lost = f"{partition}@{start}-{whole_from - 1}"
        raise Error(
            f"the sink lacks {lost}, and compaction has removed some of these records",
            "restore a newer copy of the sink, or continue without them: "
            f"tailrace pipeline ack {ledger.name} {lost} --reason TEXT",
        )


def _stream(ledger: WriterLedger, partition: Partition) -> str:
    return stream_name(ledger.view.definition.identity, partition)
