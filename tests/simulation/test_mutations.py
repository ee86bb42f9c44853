"""The simulator notices when a safeguard is missing."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.seeded_trials import Found, Trials
from tests.simulation.trials import run, trial
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

FOUND = {
    "without_the_epoch_check": Found((66, 83, 94), "may both deliver"),
    "without_the_resend": Found((3, 5, 7), "has not consumed|is owned by nobody"),
    "without_the_early_stop": Found((3, 6, 12), "may both deliver"),
    "without_the_parent_gate": Found((0, 4, 16), "is not finished"),
    "without_the_fence": Found((6, 45, 60), "which has ended|falls from"),
    "without_the_turn_of_a_unit": Found((17, 21, 27), "has not consumed"),
    "without_the_unit_of_an_ack": Found((0, 3, 5), "has not consumed"),
    "without_the_wait_of_a_drain": Found((0, 6, 17), "as drained with"),
}

SEARCHED = count("mutation_seeds", test=1, soak=100)
TRIALS = Trials(lambda seed: run(trial(seed)))


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_one_of_its_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIALS.assert_found_by_one(FOUND[name], lambda: MUTATIONS[name](monkeypatch))


@pytest.mark.soak
@pytest.mark.part("groups")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_found_by_some_of_many_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch, record_evidence: RecordEvidence
) -> None:
    MUTATIONS[name](monkeypatch)
    TRIALS.assert_found_by_some(name, range(SEARCHED), "groups", record_evidence)
