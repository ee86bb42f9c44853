"""Tasks that share a source keep their promises under faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.seeded_trials import Trials, batch_of
from tests.simulation.sourced import run, trial
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

SEEDS = count("source_seeds", test=30, soak=2000)
BATCHES = 8


@pytest.mark.part("sources")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_tasks_keep_their_promises_under_faults_and_storms_of_splits(
    batch: int, record_evidence: RecordEvidence
) -> None:
    what = f"virtual minutes of a source under faults, batch {batch + 1} of {BATCHES}"
    seeds = batch_of(SEEDS, batch, BATCHES)
    Trials(run).assert_kept(what, seeds, "sources", record_evidence)


def test_the_worlds_of_a_test_run_have_every_kind_of_fault() -> None:
    trials = [trial(seed) for seed in range(30)]
    faults = [each.faults for each in trials]
    assert any(each.network.loss for each in faults), "messages of the membership are lost"
    assert any(each.store.stalling for each in faults), "the store stalls"
    assert any(each.store.unknown for each in faults), "outcomes are unknown"
    assert any(each.crash_every_s for each in faults)
    assert any(each.pause_every_s and each.pause_s > 10.0 for each in faults)
    assert any(each.cut_every_s for each in faults)
    assert any(each.outage_every_s for each in faults)
    assert any(each.world.options.pausing for each in trials), "tasks pause before they act"
    assert any(each.world.reader_failure for each in trials), "reads fail"


@pytest.mark.parametrize("seed", [100277, 100661, 600232])
def test_worlds_that_broke_a_promise_once_keep_it(seed: int) -> None:
    run(seed)


def test_the_same_seed_replays_identically_in_another_process() -> None:
    """Also with another hash seed."""
    replay = (
        "from tests.simulation.sourced import run\n"
        "for seed in (1, 5, 7): print(run(seed).world.simulation.trace.text())\n"
    )
    traces = []
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", replay]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        traces.append(done.stdout)
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 500
