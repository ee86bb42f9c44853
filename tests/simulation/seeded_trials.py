"""Trials from seeds: none finds a violation, and some do if a safeguard is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tailrace.testing.simulation import Violation
from tests.support.evidence import RecordEvidence


class Found(NamedTuple):
    """Some seeds of trials that find a mutation, and the violation that they find.

    A change of a decision may make one of the seeds miss it; the soak finds others.
    """

    seeds: tuple[int, ...]
    what: str


class Trials(NamedTuple):
    """The trials of a simulation: `run` raises the `Violation` that the trial of a seed finds."""

    run: Callable[[int], object]

    def violation(self, seed: int) -> Violation | None:
        """Return the violation that the trial of a seed finds."""
        try:
            self.run(seed)
        except Violation as violation:
            return violation
        return None

    def assert_kept(
        self, what: str, seeds: range, part: str, record_evidence: RecordEvidence
    ) -> None:
        """Assert that the seeds find nothing, and record how many they are."""
        violations = [found for seed in seeds if (found := self.violation(seed)) is not None]
        record_evidence(part, what, len(seeds), seeds, len(violations))
        if violations:
            pytest.fail("\n\n".join(map(str, violations[:3])), pytrace=False)

    def assert_found_by_one(self, found: Found, mutate: Callable[[], None]) -> None:
        """Assert that the seeds find nothing, and with the mutation one of them finds it."""
        assert all(self.violation(seed) is None for seed in found.seeds)
        mutate()
        violations = (self.violation(seed) for seed in found.seeds)
        first = next((violation for violation in violations if violation is not None), None)
        assert first is not None
        assert re.search(found.what, first.what)

    def assert_found_by_some(
        self, name: str, seeds: range, part: str, record_evidence: RecordEvidence
    ) -> None:
        """Assert that some of many seeds find the mutation of that name, and record which do."""
        found = [seed for seed in seeds if self.violation(seed) is not None]
        what = f"simulated {name.replace('_', ' ')}: found"
        record_evidence(part, what, len(found), found, 0)
        assert found


def batch_of(seeds: int, batch: int, batches: int) -> range:
    """Return the seeds of a batch, of as many as there are below `seeds`."""
    return range(batch * seeds // batches, (batch + 1) * seeds // batches)
