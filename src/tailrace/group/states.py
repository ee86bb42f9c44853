"""The states of the protocol between borrowers and leaders, and every step between them."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tailrace.machine import Transitions


class BorrowerState(Enum):
    """How far a borrower is."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNSUBSCRIBING = "unsubscribing"


class StreamState(Enum):
    """What a borrower does with a unit that it has."""

    GRANTED = "granted"
    REVOKING = "revoking"


class AssignmentState(Enum):
    """How far a leader is with a unit that it has assigned."""

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
        (BorrowerState.CONNECTED, "unsubscribe", BorrowerState.UNSUBSCRIBING),
        (BorrowerState.CONNECTED, "died", None),
        (BorrowerState.CONNECTED, "invalidate", None),
        (BorrowerState.UNSUBSCRIBING, "all drained", None),
        (BorrowerState.UNSUBSCRIBING, "leave timeout", None),
        (BorrowerState.UNSUBSCRIBING, "died", None),
        (BorrowerState.UNSUBSCRIBING, "invalidate", None),
    ],
)

STREAM: Final = Transitions[StreamState](
    "stream at the borrower",
    [
        (None, "grant", StreamState.GRANTED),
        (StreamState.GRANTED, "revoke", StreamState.REVOKING),
        (StreamState.GRANTED, "unsubscribe", StreamState.REVOKING),
        (StreamState.GRANTED, "fenced", StreamState.REVOKING),
        *(
            (state, cause, None)
            for state in StreamState
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
