"""Changes that are retried when another process changes the same entries."""

from __future__ import annotations

import pytest

from tailrace.backend.retry import CHANGES_MAX, retry_on_conflict
from tailrace.errors import Busy, Conflict


def test_a_change_is_retried_after_a_conflict_and_after_none() -> None:
    results = iter([Conflict("a", 1, 2), None, 0])

    def attempt() -> int | None:
        result = next(results)
        if isinstance(result, Conflict):
            raise result
        return result

    assert retry_on_conflict(attempt, "topic 'orders'") == 0


def test_a_change_that_conflicts_every_time_is_busy_and_names_its_subject() -> None:
    attempts: list[None] = []
    with pytest.raises(Busy, match=rf"topic 'orders' was changed .* {CHANGES_MAX} times"):
        retry_on_conflict(lambda: attempts.append(None), "topic 'orders'")
    assert len(attempts) == CHANGES_MAX
