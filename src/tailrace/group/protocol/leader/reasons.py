"""The reasons in the history of a group, for people. Nothing is decided by them."""

from __future__ import annotations

from typing import Final

from tailrace.group.protocol.leader.assignments import UnitAssignment
from tailrace.group.protocol.names import consumer_of
from tailrace.group.protocol.unit import UnitState

CLOSED: Final = "the consumer was closed"
PROCESS_DIED: Final = "the consumer's process died"
NOT_CLOSED: Final = "the consumer ended without being closed"
NOT_CONNECTED: Final = "the consumer did not connect to the new leader in time"

CONSUMER_JOINED: Final = "rebalanced: a consumer joined"
PARTITIONS_CHANGED: Final = "rebalanced: partitions opened or closed"
REVOKED_BEFORE: Final = "its revocation began under the previous leader"
NO_CONSUMER: Final = "no consumer had it"
OPENED: Final = "opened: every partition that it follows is finished"


def lease_expired(silent_s: float) -> str:
    """Why a consumer left whose process sent no heartbeat."""
    return f"lease expired: the consumer's process sent no heartbeat for {silent_s:g} s"


def why_closed(state: UnitState | None) -> str:
    """Why a partition is not open; None for one that no longer exists."""
    if state is None:
        return "deleted: it no longer exists"
    if state is UnitState.FINISHED:
        return "finished: every record is acknowledged"
    return (
        "waiting: a partition that it follows is not finished, or a seek, a skip or a change of the"
        " number of shards is in progress"
    )


def why_freed(ended: UnitAssignment, cause: str) -> str:
    """Why a partition is free whose consumer is still a member."""
    if ended.final:
        return "drained and released"
    if cause == "given up":
        return "revoked: the consumer did not answer"
    if ended.overdue:
        return "revoked: the consumer did not release it in time"
    if ended.leaving:
        return "revoked by a seek or a skip"
    return "the consumer no longer has it"


def why_granted(borrower: str, before: str | None, opened: bool) -> str:
    """Why a borrower gets a partition. `before` had it last; `opened`: it was not open before."""
    if before is None:
        return OPENED if opened else NO_CONSUMER
    if before == borrower:
        return "granted again to the same consumer"
    return f"taken over from {consumer_of(before)}"
