"""Load control holds in simulated worlds, whoever dies, pauses or takes over."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.delivery import throttle
from tailrace.subscription.shard.load.throttle import ErrorThrottle
from tailrace.subscription.worker.owned_shard import OwnedShard
from tailrace.testing.simulation import Violation
from tests.simulation.seeded_trials import Trials
from tests.simulation.subscribed import run
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

THROTTLED_SEEDS = count("throttled_seeds", test=20, soak=1000)
SEEDS = count("calls_total_seeds", test=20, soak=1000)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
def test_all_workers_together_make_no_more_calls_than_the_total(
    record_evidence: RecordEvidence,
) -> None:
    trials = Trials(lambda seed: run(seed, limited=True))
    what = "virtual minutes of a subscription with a total of calls under faults"
    trials.assert_kept(what, range(SEEDS), "subscriptions", record_evidence)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
def test_messages_that_a_throttle_holds_back_are_called_in_order_at_last(
    record_evidence: RecordEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "BURST", 1)
    monkeypatch.setattr(throttle, "BURST_MIN", 1)
    held: Counter[bool] = Counter()
    admit = ErrorThrottle.admit

    def counted(throttle: ErrorThrottle, now: float) -> bool:
        admitted = admit(throttle, now)
        held[admitted] += 1
        return admitted

    monkeypatch.setattr(ErrorThrottle, "admit", counted)
    trials = Trials(
        lambda seed: run(seed, limited=True, pauses=seed % 3 == 0, slice_max=3 * (seed % 2))
    )
    what = "virtual minutes of a subscription with a tight throttle under faults"
    trials.assert_kept(what, range(THROTTLED_SEEDS), "subscriptions", record_evidence)
    assert held[False] > THROTTLED_SEEDS


def test_a_throttle_that_forgets_when_to_go_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BURST", 1)
    monkeypatch.setattr(throttle, "BURST_MIN", 1)
    monkeypatch.setattr(ErrorThrottle, "_refill", lambda throttle, now: None)
    with pytest.raises(Violation, match="has not consumed"):
        run(1, limited=True)


def test_calls_beyond_the_part_of_a_shard_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnedShard, "has_room", True)
    with pytest.raises(Violation, match="calls under way, and"):
        run(1, limited=True)
