"""The simulator notices when a safeguard of subscriptions is missing."""

from __future__ import annotations

import pytest

from tests.simulation.seeded_trials import Found, Trials
from tests.simulation.subscribed import run
from tests.simulation.subscription_mutations import MUTATIONS
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

FOUND = {
    "without_the_atomic_move": Found((12, 22, 27), "handled message|has lost"),
    "without_what_was_not_stored": Found((8, 11, 15), "handled message|has lost"),
    "without_the_takeover_order": Found((0, 1, 2), "handled message|has not consumed"),
    "without_the_lag_rule": Found((0, 1, 2), "handled message|two messages"),
    "without_the_lag_in_dlq": Found((0, 3, 4), "handled message"),
    "without_the_fence": Found((32, 45, 69), "which has ended|falls from|handled message|twice"),
    "without_dropping_a_shard_of_unknown_outcome": Found((5, 12, 15), "twice"),
    "without_the_lineage_gate": Found((4, 7, 15), "handled message"),
    "without_the_call_alone": Found((3, 4, 6), "has not consumed"),
    "without_the_gate_of_the_process": Found((0, 20, 24), "beside a suspect"),
}

SEARCHED = count("subscription_mutation_seeds", test=1, soak=60)
TRIALS = Trials(run)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_one_of_its_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIALS.assert_found_by_one(FOUND[name], lambda: MUTATIONS[name](monkeypatch))


@pytest.mark.soak
@pytest.mark.part("subscriptions")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    TRIALS.assert_found_by_some(name, range(SEARCHED), "subscriptions", record_evidence)
