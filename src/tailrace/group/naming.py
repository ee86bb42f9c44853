"""What borrowers are called.

People know a consumer by the name of its session. A borrower of it is called by that name, and,
behind a tilde, by the process and a number: so no two borrowers, of whatever process and however
often a session begins again, are ever called the same.
"""

from __future__ import annotations

from typing import Final

_BEHIND: Final = "~"


def borrower_name(session: str, process: str, number: int) -> str:
    """The name of the `number`-th borrower that a process made, which is for this session."""
    return f"{session}{_BEHIND}{process}.{number}"


def consumer_of(borrower: str) -> str:
    """The consumer that a borrower is of, by the name that people see."""
    return borrower.rpartition(_BEHIND)[0] or borrower
