"""A backend that goes wrong on purpose, around one that does not."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.backend.contract import Transaction
from tailrace.errors import OutcomeUnknown
from tailrace.message import Range
from tailrace.testing import MemoryBackend


class FaultyBackend(MemoryBackend):
    """Calls `before` with each transaction it is to commit, and `after` with what it committed.

    What they raise is what the caller gets.
    """

    def __init__(self, *, gap_every: int = 0) -> None:
        super().__init__(gap_every=gap_every)
        self.before: Callable[[Transaction], None] = _nothing
        self.after: Callable[[Transaction], None] = _nothing

    def commit(self, transaction: Transaction) -> list[Range]:
        """Commit between the two calls."""
        self.before(transaction)
        ranges = super().commit(transaction)
        self.after(transaction)
        return ranges


def once(action: Callable[[], None]) -> Callable[[Transaction], None]:
    """Do it at the first transaction that appends records, and never again."""
    left = [action]

    def act(transaction: Transaction) -> None:
        if transaction.appends and left:
            left.pop()()

    return act


def unknown() -> None:
    """The outcome that nobody knows."""
    raise OutcomeUnknown("the commit may or may not be stored")


def _nothing(transaction: Transaction) -> None:
    """All is well."""
