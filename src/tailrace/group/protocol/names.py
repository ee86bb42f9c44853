"""The names of borrowers.

People know a consumer by the name of its session. The name of a borrower is the session's name, a
tilde, the process and a number. So no two borrowers ever have the same name, in any process and
however often a session connects again.
"""

from __future__ import annotations

from typing import Final

_SEPARATOR: Final = "~"


def borrower_name(session: str, process: str, number: int) -> str:
    """Return the name of a session's borrower, the `number`-th that the process made."""
    return f"{session}{_SEPARATOR}{process}.{number}"


def consumer_of(borrower: str) -> str:
    """Return the consumer of a borrower, by the name that people see."""
    return borrower.rpartition(_SEPARATOR)[0] or borrower
