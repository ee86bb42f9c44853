"""Offset resets at random times, by operators some of whom die: everything that is due is handled
once for each reset, in order per key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tailrace.backend.contract import FENCES, Change
from tailrace.subscription.shard.intake import Intake
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.store.reset import apply, steps
from tests.simulation import resharded
from tests.simulation.seeded_trials import Found, Trials, batch_of
from tests.simulation.subscribed import run
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

SEEDS = count("reset_seeds", test=30, soak=2000)
BATCHES = 6


def _run(seed: int) -> None:
    run(seed, resets=True, pauses=seed % 4 == 0, slice_max=3 if seed % 5 == 0 else 0)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_everything_that_is_due_is_handled_once_for_each_reset(
    batch: int, record_evidence: RecordEvidence
) -> None:
    what = f"virtual minutes of a subscription that is reset, batch {batch + 1} of {BATCHES}"
    seeds = batch_of(SEEDS, batch, BATCHES)
    Trials(_run).assert_kept(what, seeds, "subscriptions", record_evidence)


MIXED_SEEDS = count("reset_generation_seeds", test=20, soak=1000)


@pytest.mark.part("subscriptions")
@pytest.mark.timeout(3000)
def test_so_it_is_while_the_number_of_shards_changes_and_operators_redeliver(
    record_evidence: RecordEvidence,
) -> None:
    trials = Trials(lambda seed: resharded.run(seed, resets=True))
    what = "virtual minutes of a subscription that is reset and re-sharded"
    trials.assert_kept(what, range(MIXED_SEEDS), "subscriptions", record_evidence)


@pytest.mark.parametrize("seed", [62, 65, 99, 107])
def test_worlds_that_broke_a_promise_once_keep_it(seed: int) -> None:
    _run(seed)


def without_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owners of shards may write while a reset is made."""
    right = steps._pending

    def pending(*given: Any) -> Change:
        change = right(*given)
        writes = {key: each for key, each in change.writes.items() if not key.startswith(FENCES)}
        return replace(change, writes=writes)

    monkeypatch.setattr(steps, "_pending", pending)


def without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that are read again are the same messages."""
    right = Intake.add

    def add(intake: Intake, streams: ShardStreams, *others: Any) -> None:
        right(intake, replace(streams, resets={}), *others)

    monkeypatch.setattr(Intake, "add", add)


def without_the_numbers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that a reset does not move get its number too."""
    monkeypatch.setattr(apply, "_numbers", lambda *_: {})


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], Found] = {
    without_fences: Found((3, 6, 7), "is not due|the ledger holds"),
    without_numbers: Found((0, 1, 3), "twice|is not due"),
    without_the_numbers_of_others: Found((5, 6, 21), "is not due"),
}
TRIALS = Trials(partial(run, resets=True))


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_missing_safeguard_is_found_by_one_of_its_seeds(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIALS.assert_found_by_one(MUTATIONS[mutate], lambda: mutate(monkeypatch))
