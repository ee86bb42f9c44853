"""Compaction of topics whose consumers are registered: what could be dropped, and the deed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tailrace.amount import format_amount
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import InvalidValue
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.holdings import Held, embedded_log
from tailrace.operations.segments import partitions_in
from tailrace.topic.consumers import LowWater, low_mark, low_water


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The full segments of a partition that are not compacted yet and lie wholly below `below`: so
    far has `consumer`, the slowest, acknowledged everything."""

    partition: str
    consumer: str
    below: int
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction would look through, by partition and in words."""

    partitions: tuple[PartitionPlan, ...]
    lines: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether there is anything to look through."""
        return any(plan.segments for plan in self.partitions)


@dataclass(frozen=True, slots=True)
class PartitionCompacted:
    """What became of the full segments of a partition that were consumed, `segments` in all."""

    partition: str
    segments: int
    rewritten: int
    messages_before: int
    messages_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did, by partition and in words."""

    partitions: tuple[PartitionCompacted, ...]
    lines: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether anything was dropped."""
        return any(done.rewritten for done in self.partitions)


def plan_compaction(hub: Hub, where: str | None) -> CompactionPlan:
    """What `compact` would look through in the hub, a topic or a partition.

    A topic without a registered consumer is left alone: nothing of it counts as consumed.
    """
    plans: list[PartitionPlan] = []
    lines: list[str] = []
    for partition in partitions_in(hub, where):
        low = low_water(hub.backend, partition)
        if low is not None:
            plan, line = _plan(hub, partition, low)
            plans.append(plan)
            lines.append(line)
    if any(plan.segments for plan in plans):
        lines.append("  stays  of each segment the last message of every key")
        lines.append("  undo   none; the others are dropped for ever")
    elif not plans:
        lines.append(
            f"nothing to compact: {where or 'no topic here'} has "
            f"{'no ' if where else 'a '}registered consumer, so nothing counts as consumed"
        )
    return CompactionPlan(tuple(plans), tuple(lines))


def compact(hub: Hub, where: str | None) -> CompactionReport:
    """Of every full segment that is consumed, keep the last message of every key."""
    backend = hub.backend
    if not isinstance(backend, EmbeddedBackend):
        raise InvalidValue("hub", backend.name, "a hub in a directory, which has segments")
    results: list[PartitionCompacted] = []
    for partition in partitions_in(hub, where):
        if low_water(backend, partition) is not None:
            done = backend.compact(partition, partial(low_mark, backend, partition))
            results.append(PartitionCompacted(str(partition), *done))
    return CompactionReport(tuple(results), tuple(_result(done) for done in results))


def _plan(hub: Hub, partition: Partition, low: LowWater) -> tuple[PartitionPlan, str]:
    full = [info for info in embedded_log(hub).segments(partition) if not info.active]
    due = [info for info in full if info.end_offset <= low.mark and not info.generation]
    messages, size, segments = Held.of(due)
    plan = PartitionPlan(str(partition), low.consumer, low.mark, segments, messages, size)
    waiting = [info for info in full if info.end_offset > low.mark]
    if due:
        line = (
            f"{partition}: {format_amount(segments, 'full segment')} below offset {low.mark:,}, "
            f"with {format_amount(messages, 'message')} ({format_amount(size, 'byte')})"
        )
    elif waiting:
        line = f"{partition}: nothing to compact"
    elif full:
        line = f"{partition}: nothing to compact, all full segments are compacted"
    else:
        line = f"{partition}: nothing to compact, no segment is full"
    if waiting:
        line += f"; {_held_up(low, len(waiting))}"
    return plan, line


def _held_up(low: LowWater, segments: int) -> str:
    done = "nothing yet" if low.mark == 0 else f"only what is before {low.mark:,}"
    return (
        f"{low.consumer} holds up {format_amount(segments, 'full segment')}: "
        f"it has acknowledged {done}"
    )


def _result(done: PartitionCompacted) -> str:
    if not done.rewritten:
        return f"{done.partition}: nothing to drop in {format_amount(done.segments, 'segment')}"
    return (
        f"{done.partition}: {format_amount(done.messages_before, 'message')} became "
        f"{done.messages_after:,}, {format_amount(done.bytes_before, 'byte')} became "
        f"{done.bytes_after:,}"
    )
