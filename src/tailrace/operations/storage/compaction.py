"""Compaction of topics with registered consumers: its plan, and the function that applies it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tailrace.amount import format_amount
from tailrace.backend.capabilities import HasSegments, compaction_of, segments_of
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import Fact
from tailrace.operations.plan import ChangePlan
from tailrace.operations.storage.segments import partitions_in
from tailrace.topic.consumers import LowWater, low_mark, low_water


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The full segments of a partition that can be compacted: those below the offset `below`.

    `consumer` is the slowest consumer. It has acknowledged every offset below `below`.
    """

    partition: str
    consumer: str
    below: int
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionCompacted:
    """The result of compacting the consumed full segments of a partition."""

    partition: str
    segments: int
    rewritten: int
    messages_before: int
    messages_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The result of a compaction: values by partition, and a line of text for each."""

    partitions: tuple[PartitionCompacted, ...]
    lines: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """True if a message was deleted."""
        return any(done.rewritten for done in self.partitions)


def plan_compaction(hub: Hub, where: str | None) -> ChangePlan:
    """Return the plan of `compact` for the hub, a topic or a partition.

    A topic without a registered consumer is left alone: none of its messages count as consumed. So
    is the topic of a queue, whose messages are jobs and not states of their keys: a replay needs
    them, and the statistics count them. Raise `NotSupported` if the backend has no segments.
    """
    log = segments_of(hub.backend, "compact segments")
    target = where or "hub"
    plans: list[PartitionPlan] = []
    facts: list[Fact] = []
    for partition in _compactable(hub, where):
        low = low_water(hub.backend, partition)
        if low is not None:
            plan, what = _plan(log, partition, low)
            plans.append(plan)
            facts.append(Fact(plan.partition, what))
    if not plans:
        consumer = "no registered consumer" if where else "no topic with a registered consumer"
        reason = f"{consumer}, so no message counts as consumed"
        if where is not None and where.partition("/")[0] in hub.queues():
            reason = "it is the topic of a queue, which keeps its messages for replays"
        summary = f"{target}: nothing to compact: {reason}"
        return ChangePlan(target, False, summary)
    segments = sum(plan.segments for plan in plans)
    if not segments:
        return ChangePlan(
            target, False, f"{target}: nothing to compact", tuple(facts), tuple(plans)
        )
    messages = format_amount(sum(plan.messages for plan in plans), "message")
    summary = f"{target}: compact {format_amount(segments, 'full segment')} with {messages}"
    facts.append(Fact("kept", "the last message of every key in each segment"))
    facts.append(Fact("undo", "none; the other messages are deleted"))
    return ChangePlan(target, True, summary, tuple(facts), tuple(plans))


def compact(hub: Hub, where: str | None) -> CompactionReport:
    """Keep the last message of every key in each full segment that is consumed.

    `NotSupported` if the backend cannot compact.
    """
    backend = hub.backend
    compacting = compaction_of(backend, "compact segments")
    results: list[PartitionCompacted] = []
    for partition in _compactable(hub, where):
        if low_water(backend, partition) is not None:
            done = compacting.compact(partition, partial(low_mark, backend, partition))
            results.append(PartitionCompacted(str(partition), *done))
    return CompactionReport(tuple(results), tuple(_result(done) for done in results))


def _compactable(hub: Hub, where: str | None) -> list[Partition]:
    """Return the partitions of the hub, of a topic, or the named one, except those of queues."""
    queues = frozenset(hub.queues())
    return [each for each in partitions_in(hub, where) if each.topic not in queues]


def _plan(log: HasSegments, partition: Partition, low: LowWater) -> tuple[PartitionPlan, str]:
    full = [info for info in log.segments(partition) if not info.active]
    due = [info for info in full if info.end_offset <= low.mark and not info.generation]
    segments, messages = len(due), sum(info.records for info in due)
    size = sum(info.bytes for info in due)
    plan = PartitionPlan(str(partition), low.consumer, low.mark, segments, messages, size)
    waiting = [info for info in full if info.end_offset > low.mark]
    if due:
        what = (
            f"{format_amount(segments, 'full segment')} below offset {low.mark:,}, "
            f"with {format_amount(messages, 'message')} ({format_amount(size, 'byte')})"
        )
    elif waiting:
        what = "nothing to compact"
    elif full:
        what = "nothing to compact: every full segment is compacted"
    else:
        what = "nothing to compact: no segment is full"
    if waiting:
        what += f"; {_blocked(low, len(waiting))}"
    return plan, what


def _blocked(low: LowWater, segments: int) -> str:
    done = "no message yet" if low.mark == 0 else f"only the messages before {low.mark:,}"
    return (
        f"{low.consumer} blocks {format_amount(segments, 'full segment')}: "
        f"it has acknowledged {done}"
    )


def _result(done: PartitionCompacted) -> str:
    if not done.rewritten:
        return f"{done.partition}: nothing to delete in {format_amount(done.segments, 'segment')}"
    return (
        f"{done.partition}: {format_amount(done.messages_before, 'message')} -> "
        f"{done.messages_after:,}, {format_amount(done.bytes_before, 'byte')} -> "
        f"{done.bytes_after:,}"
    )
