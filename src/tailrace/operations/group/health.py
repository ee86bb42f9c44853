"""The state of a group as a whole, or of its partitions in one topic, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from tailrace.amount import format_amount
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import TopicFilter, group_names, read_group
from tailrace.group.store.describe import GroupDetail, GroupPartition, show_group
from tailrace.group.store.history import read_history
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.group.stuck import silent_owner
from tailrace.operations.health import Health

_LEFT: Final = frozenset({"left", "freed"})


class GroupState(StrEnum):
    """What a group does, the worst first."""

    BLOCKED = "BLOCKED"
    RETRYING = "RETRYING"
    SILENT = "SILENT"
    UNATTENDED = "UNATTENDED"
    CONSUMING = "CONSUMING"
    CAUGHT_UP = "CAUGHT UP"
    IDLE = "IDLE"
    TOPIC_DELETED = "TOPIC DELETED"


def judge(hub: Hub, group: GroupDetail, topic: str | None = None) -> Health[GroupState]:
    """Return the state of a group in all its topics, or in one."""
    name = group.summary.name
    partitions = partitions_of(group, topic)
    lag = f"lag {sum(each.lag for each in partitions):,}"
    if group.summary.topic_deleted:
        return Health(GroupState.TOPIC_DELETED, f"topic {group.summary.filter!r} is deleted")
    silent = {p.partition: each for p in partitions if (each := silent_owner(hub, group, p))}
    # A consumer that does not run retries nothing, and blocks nothing for the next owner.
    attended = [p for p in partitions if p.owner is not None and p.partition not in silent]
    failed = [each for partition in attended for each in partition.failed]
    if failed:
        last = [each for each in failed if each.next_attempt is None]
        state = GroupState.BLOCKED if last else GroupState.RETRYING
        what = format_amount(len(last or failed), "failed message")
        blocks = "blocks its key" if len(last or failed) == 1 else "block their keys"
        return Health(state, f"{what} {blocks}, {lag}", min(each.time for each in failed))
    if silent:
        longest = max(silent.values(), key=lambda each: each.silent_s)
        silence = f"no heartbeat for {longest.silent_s:.0f} s"
        why = f"{longest.id} owns partitions, {silence}, {lag}"
        return Health(GroupState.SILENT, why)
    if not any(each.lag for each in partitions):
        if group.consumers:
            return Health(GroupState.CAUGHT_UP, "every message is acknowledged")
        return Health(GroupState.IDLE, "every message is acknowledged, no consumer runs")
    if not group.consumers:
        left = [line.time for line in read_history(hub.backend, name) if line.what in _LEFT]
        why = f"no consumer runs, {lag}"
        return Health(GroupState.UNATTENDED, why, left[-1] if left else None)
    running = format_amount(len(group.consumers), "consumer")
    return Health(GroupState.CONSUMING, f"{lag}, {running}")


def groups_of(hub: Hub, topic: str) -> Iterator[GroupDetail]:
    """Yield the groups that consume a topic, by name."""
    for name in group_names(hub.backend):
        if TopicFilter(read_group(hub.backend, name).definition.filter).matches(topic):
            yield show_group(hub.backend, name)


def partitions_of(group: GroupDetail, topic: str | None) -> Sequence[GroupPartition]:
    """Return the partitions of a group, or those of one topic."""
    if topic is None:
        return group.partitions
    return [each for each in group.partitions if Partition.parse(each.partition).topic == topic]


def unfinished(partition: GroupPartition) -> bool:
    """True if a partition has, or may get, messages that are not acknowledged."""
    return partition.state is not UnitState.FINISHED
