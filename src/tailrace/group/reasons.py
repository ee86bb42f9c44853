"""What the history of a group says of why: for people, and nothing is decided by it."""

from __future__ import annotations

from typing import Final

from tailrace.group.assignments import Assignment
from tailrace.group.naming import consumer_of
from tailrace.group.unit import UnitState

LEFT: Final = "left in order"
DIED: Final = "died with its process"
SILENT: Final = "was silent for a lease"
ENDED: Final = "ended without leaving"
NOT_COME: Final = "did not come to the new leader"
"""What became of a consumer that is no more, as what is said of it."""

ANOTHER_JOINED: Final = "shared out anew: another joined"
SHARED_ANEW: Final = "shared out anew: other streams opened or ended"
BEING_LET_GO: Final = "was being let go of under the leader before"
NOBODY_HAD_IT: Final = "nobody had it"
OPENED: Final = "new, and what it follows is finished"


def why_closed(state: UnitState | None) -> str:
    """Why a unit is not consumed now; None for one that is no longer there."""
    if state is None:
        return "its topic is gone"
    if state is UnitState.FINISHED:
        return "all consumed"
    return "waits until what it follows is finished, or until it is where a seek sends it"


def why_freed(ended: Assignment, cause: str) -> str:
    """Why a unit is free whose consumer is there still."""
    if ended.final:
        return "let go of, finished in order"
    if cause == "given up":
        return "taken away: its consumer did not answer"
    if ended.overdue:
        return "taken away: it was not let go of in time"
    if ended.leaving:
        return "taken away by a seek or a skip"
    return "its consumer has it no longer"


def why_granted(borrower: str, before: str | None, opened: bool) -> str:
    """Why a consumer gets a unit, by the borrower that had it before, or that it has `opened`."""
    if before is None:
        return OPENED if opened else NOBODY_HAD_IT
    if before == borrower:
        return "has it again"
    return f"taken over from {consumer_of(before)}"
