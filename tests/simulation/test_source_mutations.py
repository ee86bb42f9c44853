"""The simulator notices when a safeguard of tasks that share a source is missing."""

from __future__ import annotations

import pytest

from tests.simulation.seeded_trials import Found, Trials
from tests.simulation.source_mutations import MUTATIONS
from tests.simulation.sourced import run
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

FOUND = {
    "without_the_epoch_of_a_claim": Found((80, 91, 59), "is not in the present epoch"),
    "without_the_key_of_each_parent": Found((1, 3, 6), "under Fence"),
    "without_the_removal_rule": Found((6, 8, 1), "is removed, and .* follows it"),
    "without_the_fence": Found((64, 46, 7), "which is not the newest"),
    "without_the_parent_gate": Found((6, 3, 1), "is read with"),
    "without_the_check_of_an_outcome": Found((16, 17, 13), "is stored at"),
    "without_the_answer_timeout": Found((48, 97, 123), "was not read|has not ended|as members"),
    "without_the_check_of_the_membership": Found((19, 55), "as members"),
    "without_the_balance": Found((28, 11, 19), "the loads are"),
}

SEARCHED = count("source_mutation_seeds", test=1, soak=150)
TRIALS = Trials(run)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_one_of_its_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIALS.assert_found_by_one(FOUND[name], lambda: MUTATIONS[name](monkeypatch))


@pytest.mark.soak
@pytest.mark.part("sources")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    TRIALS.assert_found_by_some(name, range(SEARCHED), "sources", record_evidence)
