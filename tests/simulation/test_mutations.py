"""The simulator notices when a safeguard is missing."""

from __future__ import annotations

import re

import pytest

from tailrace.testing.simulation import Violation
from tests.simulation.mutations import MUTATIONS
from tests.simulation.trials import run, trial
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

FOUND_BY = {
    "without_the_epoch_check": (66, 83, 94),
    "without_the_resend": (3, 5, 7),
    "without_the_early_stop": (3, 6, 12),
    "without_the_parent_gate": (0, 4, 16),
    "without_the_fence": (6, 45, 60),
    "without_the_turn_of_a_unit": (17, 21, 27),
    "without_the_unit_of_an_ack": (0, 3, 5),
    "without_the_wait_of_a_drain": (0, 6, 17),
}
"""For each mutation some seeds of trials that find it. A change of a decision of the protocol or of
the session may make one of them miss it; the soak finds others."""

FOUND = {
    "without_the_epoch_check": "may both deliver",
    "without_the_resend": "has not consumed|is owned by nobody",
    "without_the_early_stop": "may both deliver",
    "without_the_parent_gate": "is not finished",
    "without_the_fence": "which has ended|falls from",
    "without_the_turn_of_a_unit": "has not consumed",
    "without_the_unit_of_an_ack": "has not consumed",
    "without_the_wait_of_a_drain": "as drained with",
}
"""The violation that they find."""

SEARCHED = count("mutation_seeds", test=1, soak=100)


def violation_of(seed: int) -> Violation | None:
    try:
        run(trial(seed))
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
@pytest.mark.part("groups")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    found = [seed for seed in range(SEARCHED) if violation_of(seed) is not None]
    record_evidence("groups", f"simulated {name.replace('_', ' ')}: found", len(found), found, 0)
    assert found
