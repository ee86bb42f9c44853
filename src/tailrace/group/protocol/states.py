"""The states of the protocol between borrowers and leaders, and every transition."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tailrace.machine import Transitions


class BorrowerState(Enum):
    """The state of a borrower."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNSUBSCRIBING = "unsubscribing"


class BorrowedUnitState(Enum):
    """The state of a unit at its borrower."""

    GRANTED = "granted"
    REVOKING = "revoking"


class AssignmentState(Enum):
    """The state of an assigned unit at the leader."""

    GRANTING = "granting"
    GRANTED = "granted"
    REVOKING = "revoking"
    REVOKED = "revoked"


BORROWER: Final = Transitions[BorrowerState](
    "borrower",
    [
        (None, "subscribe", BorrowerState.CONNECTING),
        (BorrowerState.CONNECTING, "leader_connect_response", BorrowerState.CONNECTED),
        (BorrowerState.CONNECTING, "unsubscribe", None),
        (BorrowerState.CONNECTING, "died", None),
        (BorrowerState.CONNECTING, "invalidate", None),
        (BorrowerState.CONNECTED, "unsubscribe", BorrowerState.UNSUBSCRIBING),
        (BorrowerState.CONNECTED, "died", None),
        (BorrowerState.CONNECTED, "invalidate", None),
        (BorrowerState.UNSUBSCRIBING, "all drained", None),
        (BorrowerState.UNSUBSCRIBING, "leave timeout", None),
        (BorrowerState.UNSUBSCRIBING, "died", None),
        (BorrowerState.UNSUBSCRIBING, "invalidate", None),
    ],
)

BORROWED_UNIT: Final = Transitions[BorrowedUnitState](
    "unit at the borrower",
    [
        (None, "grant", BorrowedUnitState.GRANTED),
        (BorrowedUnitState.GRANTED, "revoke", BorrowedUnitState.REVOKING),
        (BorrowedUnitState.GRANTED, "unsubscribe", BorrowedUnitState.REVOKING),
        (BorrowedUnitState.GRANTED, "fenced", BorrowedUnitState.REVOKING),
        *(
            (state, cause, None)
            for state in BorrowedUnitState
            for cause in ("revoked", "overtaken", "not kept", "borrower gone")
        ),
    ],
)

ASSIGNMENT: Final = Transitions[AssignmentState](
    "assignment at the leader",
    [
        (None, "grant committed", AssignmentState.GRANTING),
        (None, "adopted", AssignmentState.GRANTED),
        (AssignmentState.GRANTING, "update_progress", AssignmentState.GRANTED),
        (AssignmentState.GRANTING, "presented", AssignmentState.GRANTED),
        (AssignmentState.GRANTING, "revoke", AssignmentState.REVOKING),
        (AssignmentState.GRANTED, "not presented", AssignmentState.GRANTING),
        (AssignmentState.GRANTED, "revoke", AssignmentState.REVOKING),
        (AssignmentState.GRANTED, "final progress", AssignmentState.REVOKED),
        (AssignmentState.REVOKING, "final progress", AssignmentState.REVOKED),
        (AssignmentState.GRANTING, "fenced", AssignmentState.REVOKED),
        (AssignmentState.GRANTED, "fenced", AssignmentState.REVOKED),
        (AssignmentState.REVOKING, "fenced", AssignmentState.REVOKED),
        *(
            (state, cause, None)
            for state in AssignmentState
            for cause in ("revoke_finished", "borrower gone")
        ),
        (AssignmentState.REVOKING, "revoke timeout", AssignmentState.REVOKED),
        (AssignmentState.REVOKED, "given up", None),
    ],
)
