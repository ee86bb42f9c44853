"""A backend in memory whose commits fail when a test wants them to."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.backend.contract import Transaction
from tailrace.errors import OutcomeUnknown
from tailrace.message import Range
from tailrace.testing import MemoryBackend


class FaultyBackend(MemoryBackend):
    """Calls `before` and `after` with each transaction, around its commit.

    The caller of `commit` gets the exceptions that they raise.
    """

    def __init__(self, *, gap_every: int = 0) -> None:
        super().__init__(gap_every=gap_every)
        self.before: Callable[[Transaction], None] = _nothing
        self.after: Callable[[Transaction], None] = _nothing

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit a transaction between the two calls."""
        self.before(transaction)
        ranges = super().commit(transaction)
        self.after(transaction)
        return ranges


def once(action: Callable[[], None]) -> Callable[[Transaction], None]:
    """Return a hook that calls `action` at the first transaction that appends records."""
    left = [action]

    def act(transaction: Transaction) -> None:
        if transaction.appends and left:
            left.pop()()

    return act


def unknown() -> None:
    """Raise the error of a commit with an unknown outcome."""
    raise OutcomeUnknown("the commit may or may not be stored")


def _nothing(transaction: Transaction) -> None:
    """Do nothing."""
