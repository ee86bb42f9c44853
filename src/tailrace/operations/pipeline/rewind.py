"""Rewinding a writer: delivering acknowledged records again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.amount import format_amount
from tailrace.errors import Error, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import Fact
from tailrace.operations.pipeline.interventions import Decision, Intervention, clear_failure
from tailrace.operations.pipeline.lookup import FoundWriter, runner
from tailrace.operations.pipeline.offset_range import parse_offset_range
from tailrace.operations.plan import ChangePlan
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.stored_writer import load_writer
from tailrace.pipeline.writer import RewindRefused, stream_name
from tailrace.pipeline.writing.plan import WritePlan, acknowledged, sealed_starts
from tailrace.pipeline.writing.writer_ledger import WriterLedger
from tailrace.topic.record_count import amount_within

_DUPLICATES: Final = Fact(
    "duplicates", "a topic, a table without a key and a Spark sink hold these rows twice"
)
_FILES: Final = Fact("files", "the files from there on are moved to _tailrace/rewound in the sink")


def plan_rewind(hub: Hub, writer: str, offset: str) -> ChangePlan:
    """Return the plan of `rewind`.

    Raise `InvalidValue` for an offset outside the log, or one that the sink cannot be rewound to.
    """
    intervention = Intervention.find(hub, writer)
    where, start = _start(intervention, offset)
    ledger = intervention.ledger()
    ledger.read()
    _check_sink(intervention, ledger, where, start)
    start = min(start, _sealed(ledger).get(where, start))
    end = hub.backend.log.bounds(where).end
    again = acknowledged(ledger.progress[where], Offsets(start, end))
    earlier = None if ledger.rewind is None else ledger.rewind.offsets.get(str(where))
    if not again and earlier is None and not _sealed(ledger):
        why = f"no record from {where}@{start} on is acknowledged: nothing to redeliver"
        return ChangePlan(writer, False, f"{writer}: {why}")
    count = amount_within(hub.backend.log, where, again).records
    mark = ledger.progress[where].mark
    if earlier is None:
        summary = f"{writer}: rewind from {where}@{mark} to @{start}"
        redelivered = f"{format_amount(count, 'acknowledged record')}; "
        redelivered += "a sink that stores its own progress forgets them first"
    else:
        summary = f"{writer}: rewind to {where}@{start} instead of @{earlier}, not yet applied"
        redelivered = f"every record delivered to the sink from @{start} on"
        if mark < start:
            redelivered += f"; from @{mark} on if the sink does not store its own progress"
    has_files = intervention.found.registered.stored is not None
    facts = [Fact("redelivered", redelivered), _FILES if has_files else _DUPLICATES]
    if ledger.plan is not None:
        facts.append(Fact("plan", "the batch in progress is dropped and planned again"))
    facts += [Fact("when", _when(hub, intervention.found)), Fact("undo", "none")]
    return ChangePlan(writer, True, summary, tuple(facts))


def rewind(hub: Hub, writer: str, offset: str) -> ChangePlan:
    """Rewind a writer to an offset. Return the plan that was applied."""
    plan = plan_rewind(hub, writer, offset)
    intervention = Intervention.find(hub, writer)
    where, start = _start(intervention, offset)

    def decide(ledger: WriterLedger) -> Decision:
        _check_sink(intervention, ledger, where, start)
        starts = _sealed(ledger)
        starts[where] = min(start, starts.get(where, start))
        for partition, first in starts.items():
            _check_sink(intervention, ledger, partition, first)
        for partition, first in starts.items():
            extra = ledger.rewind_to(partition, first)
        to = ", ".join(f"{partition}@{first}" for partition, first in starts.items())
        return Decision(f"rewound to {to}", None, clear_failure(ledger.state), extra)

    intervention.apply("pipeline rewind", decide)
    return plan


def _sealed(ledger: WriterLedger) -> dict[Partition, int]:
    """Return where the partitions of a sealed plan start: a rewind drops the plan as a whole."""
    return {} if ledger.plan is None else sealed_starts(ledger.plan)


def _start(intervention: Intervention, offset: str) -> tuple[Partition, int]:
    """Return where to start. Raise `InvalidValue` if the log lacks a record from there on."""
    where, offsets = parse_offset_range(intervention.log, offset)
    if offsets.end > offsets.start + 1:
        raise InvalidValue("offset", offset, "one offset; every record from it on is redelivered")
    log = intervention.hub.backend.log
    start, end, _ = log.bounds(where)
    start = max(start, log.whole_from(where))
    if not start <= offsets.start <= end:
        why = "; older records were compacted" if offsets.start < start else ""
        raise InvalidValue("offset", offsets.start, f"{start} to {end} of {where}{why}")
    return where, offsets.start


def _check_sink(
    intervention: Intervention, ledger: WriterLedger, where: Partition, start: int
) -> None:
    """Raise `InvalidValue`, with the nearest valid offsets, if the sink refuses a rewind.

    Files that are staged but not published yet count as published.
    """
    found, hub = intervention.found, intervention.hub
    if found.registered.stored is None:
        return
    for offsets in () if ledger.plan is None else _staged(ledger.plan, where):
        if offsets.start < start < offsets.end:
            raise _refused(intervention, ledger, where, start, offsets)
    writer = load_writer(found.registered.stored)
    stream = stream_name(ledger.view.definition.identity, where)
    try:
        writer.check_rewind(str(found.name), stream, start, hub)
    except RewindRefused as refused:
        raise _refused(intervention, ledger, where, start, refused.valid_offsets) from refused
    except OSError as error:
        raise Error(
            f"the sink of {found.name} cannot be read: {error}",
            "run this command on a host that can read it",
        ) from error


def _staged(plan: WritePlan, where: Partition) -> Iterator[Offsets]:
    """Yield the offsets of the staged files of a partition."""
    written = [part.offsets for part in plan.written if part.where == where]
    for staged in plan.staged:
        if any(whole.start <= staged.offsets.start < whole.end for whole in written):
            yield staged.offsets


def _refused(
    intervention: Intervention,
    ledger: WriterLedger,
    where: Partition,
    start: int,
    nearest: Sequence[int],
) -> InvalidValue:
    log, name = intervention.hub.backend.log, intervention.found.name
    oldest = max(log.bounds(where).start, log.whole_from(where))
    prefix = "" if len(ledger.progress) == 1 else f"{where}@"
    valid = [f"{prefix}{offset}" for offset in nearest if offset >= oldest]
    commands = " or ".join(f"tailrace pipeline rewind {name} {offset}" for offset in valid)
    return InvalidValue(
        "offset",
        f"{prefix}{start}",
        f"{' or '.join(valid)}, because a file of the sink is rewound as a whole",
        f"rewind to one of these: {commands}",
    )


def _when(hub: Hub, found: FoundWriter) -> str:
    running = runner(hub, found.pipeline.name)
    return "at the next start" if running is None else f"at once, by {running}"
