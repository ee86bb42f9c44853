"""The simulator notices when a safeguard of subscriptions is missing."""

from __future__ import annotations

import re

import pytest

from tailrace.testing.simulation import Violation
from tests.simulation.subscribed import run
from tests.simulation.subscription_mutations import MUTATIONS
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

FOUND_BY = {
    "without_the_atomic_move": (0, 7, 12),
    "without_what_was_not_stored": (0, 3, 7),
    "without_the_takeover_order": (0, 1, 2),
    "without_the_lag_rule": (0, 1, 2),
    "without_the_lag_in_dlq": (0, 3, 4),
    "without_the_fence": (32, 45, 69),
    "without_dropping_a_shard_of_unknown_outcome": (5, 12, 15),
    "without_the_lineage_gate": (4, 7, 15),
    "without_the_call_alone": (3, 4, 6),
    "without_the_gate_of_the_process": (0, 20, 24),
}
"""For each mutation some seeds of trials that find it. A change of a decision may make one of them
miss it; the soak finds others."""

FOUND = {
    "without_the_atomic_move": "handled message|has lost",
    "without_what_was_not_stored": "handled message|has lost",
    "without_the_takeover_order": "handled message|has not consumed",
    "without_the_lag_rule": "handled message|two messages",
    "without_the_lag_in_dlq": "handled message",
    "without_the_fence": "which has ended|falls from|handled message|twice",
    "without_dropping_a_shard_of_unknown_outcome": "twice",
    "without_the_lineage_gate": "handled message",
    "without_the_call_alone": "has not consumed",
    "without_the_gate_of_the_process": "beside a suspect",
}
"""The violation that they find."""

SEARCHED = count("subscription_mutation_seeds", test=1, soak=60)


def violation_of(seed: int) -> Violation | None:
    try:
        run(seed)
    except Violation as violation:
        return violation
    return None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_one_of_its_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(violation_of(seed) is None for seed in FOUND_BY[name])
    MUTATIONS[name](monkeypatch)
    violations = (violation_of(seed) for seed in FOUND_BY[name])
    found = next((violation for violation in violations if violation is not None), None)
    assert found is not None
    assert re.search(FOUND[name], found.what)


@pytest.mark.soak
@pytest.mark.part("subscriptions")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    found = [seed for seed in range(SEARCHED) if violation_of(seed) is not None]
    what = f"simulated {name.replace('_', ' ')}: found"
    record_evidence("subscriptions", what, len(found), found, 0)
    assert found
