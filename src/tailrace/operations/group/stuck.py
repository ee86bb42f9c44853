"""Why a group does not progress although consumers own its partitions."""

from __future__ import annotations

from enum import StrEnum

from tailrace.amount import format_amount
from tailrace.delivery.failed_attempts import KEPT_MAX
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.describe import GroupConsumer, GroupDetail, GroupPartition
from tailrace.group.store.failed_messages import FailedMessage
from tailrace.hub.hub import Hub


class FailedState(StrEnum):
    """What becomes of a failed message by itself; `UNATTENDED` if no consumer owns its
    partition."""

    STUCK = "stuck"
    RETRYING = "retrying"
    UNATTENDED = "failed"


def name_failed(failed: FailedMessage) -> str:
    """Return the position and key of a failed message: ``orders/0.0@2 (key 'k5')``."""
    return failed.position if failed.key is None else f"{failed.position} (key {failed.key!r})"


def failed_state(failed: FailedMessage, partition: GroupPartition) -> FailedState:
    """Return the state of a failed message."""
    if partition.owner is None:
        return FailedState.UNATTENDED
    return FailedState.STUCK if failed.next_attempt is None else FailedState.RETRYING


def describe_failed(failed: FailedMessage, partition: GroupPartition) -> str:
    """Return a sentence about a failed message and its consequences."""
    times = format_amount(failed.attempts, "time")
    blocked = "it is not redelivered" if failed.key is None else "its key is blocked"
    if partition.owner is None:
        blocked = f"the next owner of {partition.partition} delivers it again"
    elif failed.next_attempt is not None:
        waits = "it" if failed.key is None else "its key"
        blocked = f"{waits} waits for the next attempt at {failed.next_attempt:%H:%M:%S}Z"
    text = f"{name_failed(failed)} failed {times}; {blocked}"
    if behind := describe_behind(failed, partition):
        text += f"; {behind}"
    return f"{text}; last error: {failed.error}" if failed.error else text


def count_behind(failed: FailedMessage, partition: GroupPartition) -> int:
    """Return the number of messages that wait behind a failed one.

    These are the messages of its key that the consumer has read, and the lag of the partitions that
    cannot start before its partition is finished.
    """
    return failed.behind + partition.followers_lag


def describe_behind(failed: FailedMessage, partition: GroupPartition) -> str:
    """Return what waits behind a failed message; empty if nothing does."""
    count = count_behind(failed, partition)
    if not count:
        return ""
    text = f"{format_amount(count, 'message')} {'waits' if count == 1 else 'wait'} behind it"
    if partition.followers_lag:
        following = format_amount(partition.followers, "partition")
        verb = "follows" if partition.followers == 1 else "follow"
        text += f", {partition.followers_lag:,} in {following} that {verb} {partition.partition}"
    return text


def describe_more(partition: GroupPartition) -> str:
    """Return how many more messages of a partition failed; empty if there is one."""
    more = len(partition.failed) - 1
    if more < 1:
        return ""
    return f" and at least {more:,} more" if more + 1 >= KEPT_MAX else f" and {more:,} more"


def skip_command(group: str, failed: FailedMessage) -> str:
    """Return the command that skips a failed message."""
    return f"tailrace group skip {group} {failed.position} --reason TEXT"


def silent_owner(hub: Hub, group: GroupDetail, partition: GroupPartition) -> GroupConsumer | None:
    """Return the owner of an unfinished partition if it sent no heartbeat for a lease."""
    if partition.state is UnitState.FINISHED:
        return None
    lease_s = hub.settings.lease.total_seconds()
    owners = (each for each in group.consumers if each.id == partition.owner)
    return next((each for each in owners if each.silent_s > lease_s), None)
