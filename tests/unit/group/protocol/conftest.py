"""The transitions that machines of the protocol take."""

from __future__ import annotations

from enum import Enum

import pytest

from tailrace.machine import Step, Transitions


@pytest.fixture
def transitions_taken(monkeypatch: pytest.MonkeyPatch) -> set[Step[Enum]]:
    """Every step that is taken while the test runs."""
    taken: set[Step[Enum]] = set()
    check = Transitions.check

    def record(
        self: Transitions[Enum], before: Enum | None, cause: str, after: Enum | None
    ) -> None:
        check(self, before, cause, after)
        taken.add(Step(before, cause, after))

    monkeypatch.setattr(Transitions, "check", record)
    return taken
