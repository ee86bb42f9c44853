"""Changes of the store that are retried when another process changes the same entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tailrace.errors import Busy, Conflict

T = TypeVar("T")

CHANGES_MAX: Final = 100
"""The number of attempts of one change before it is `Busy`."""


def retry_on_conflict(attempt: Callable[[], T | None], subject: str) -> T:
    """Call `attempt` until it succeeds, and return its result.

    An attempt reads the entries it changes and commits the change if they are still the same. A
    `Conflict`, or None, means that another process changed them meanwhile. After `CHANGES_MAX`
    attempts raises `Busy`, which names the subject: ``"topic 'orders'"``.
    """
    for _ in range(CHANGES_MAX):
        try:
            result = attempt()
        except Conflict:
            continue
        if result is not None:
            return result
    raise Busy(
        f"{subject} was changed by other processes {CHANGES_MAX} times in a row", "try again later"
    )
