"""Load control holds in simulated worlds, whoever dies, pauses or takes over."""

from __future__ import annotations

import pytest

from tailrace.subscription.worker.owned_shard import OwnedShard
from tailrace.testing.simulation import Violation
from tests.simulation.subscribed import run
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

SEEDS = count("calls_total_seeds", test=20, soak=1000)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
def test_all_workers_together_make_no_more_calls_than_the_total(
    record_evidence: RecordEvidence,
) -> None:
    violations = []
    for seed in range(SEEDS):
        try:
            run(seed, limited=True)
        except Violation as violation:
            violations.append(violation)
    what = "virtual minutes of a subscription with a total of calls under faults"
    record_evidence("subscriptions", what, SEEDS, range(SEEDS), len(violations))
    if violations:
        pytest.fail("\n\n".join(map(str, violations[:3])), pytrace=False)


def test_calls_beyond_the_part_of_a_shard_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnedShard, "has_room", True)
    with pytest.raises(Violation, match="calls under way, and"):
        run(1, limited=True)
