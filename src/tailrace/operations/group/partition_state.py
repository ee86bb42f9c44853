"""The state of a partition for a group, and the reason for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.describe import GroupDetail, GroupPartition
from tailrace.hub.hub import Hub
from tailrace.operations.group.stuck import FailedState, failed_state, silent_owner


class PartitionState(StrEnum):
    """What a group does with a partition."""

    FINISHED = "FINISHED"
    WAITING = "WAITING"
    SILENT = "SILENT"
    STUCK = "STUCK"
    RETRYING = "RETRYING"
    CONSUMED = "CONSUMED"
    UNATTENDED = "UNATTENDED"
    IDLE = "IDLE"
    FREE = "FREE"

    @property
    def delivers(self) -> bool:
        """True if a live consumer owns the partition."""
        return self in (PartitionState.STUCK, PartitionState.RETRYING, PartitionState.CONSUMED)


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """The state of a partition for a group, and the reason in words."""

    state: PartitionState
    why: str


def judge_partition(
    hub: Hub, group: GroupDetail, partition: GroupPartition, follows: Sequence[GroupPartition]
) -> PartitionHealth:
    """Return the state of a partition. `follows` are the partitions that it has to wait for."""
    lag = f"lag {partition.lag:,}"
    if partition.state is UnitState.FINISHED:
        return PartitionHealth(PartitionState.FINISHED, "every message is acknowledged")
    if partition.state is UnitState.WAITING:
        unfinished = [each for each in follows if each.state is not UnitState.FINISHED]
        names = ", ".join(f"{each.partition} (lag {each.lag:,})" for each in unfinished)
        why = f"to keep the order of each key it waits for {names}"
        if not unfinished:
            why = "a seek of the group is in progress"
        return PartitionHealth(PartitionState.WAITING, f"{lag}; {why}")
    if partition.owner is not None:
        owned = f"{lag}; owner {partition.owner}, epoch {partition.epoch}"
        if silent := silent_owner(hub, group, partition):
            silence = f"no heartbeat for {silent.silent_s:.0f} s"
            return PartitionHealth(PartitionState.SILENT, f"{owned}, {silence}")
        return PartitionHealth(_delivering(partition), owned)
    if not group.consumers and not partition.lag:
        why = "every message is acknowledged, no consumer runs"
        return PartitionHealth(PartitionState.IDLE, why)
    if not group.consumers:
        why = f"{lag}; no consumer of the group runs"
        return PartitionHealth(PartitionState.UNATTENDED, why)
    return PartitionHealth(PartitionState.FREE, f"{lag}; about to be granted to a consumer")


def _delivering(partition: GroupPartition) -> PartitionState:
    states = {failed_state(failed, partition) for failed in partition.failed}
    if FailedState.STUCK in states:
        return PartitionState.STUCK
    return PartitionState.RETRYING if states else PartitionState.CONSUMED
