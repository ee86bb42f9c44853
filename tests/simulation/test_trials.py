"""Random worlds keep every guarantee of groups under faults."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from tailrace.testing.trace import Mark
from tests.simulation.seeded_trials import Trials, batch_of
from tests.simulation.trials import SECONDS, calm_trial, run, trial
from tests.support.counts import count, soaking
from tests.support.evidence import RecordEvidence

SEEDS = count("group_seeds", test=40, soak=2000)
BATCHES = 8
SPEED_MIN = 200.0
"""Virtual seconds in a second, on a machine that does nothing else."""


@pytest.mark.part("groups")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_groups_keep_their_promises_under_faults_and_scaling(
    batch: int, record_evidence: RecordEvidence
) -> None:
    what = f"virtual minutes of a group under faults, batch {batch + 1} of {BATCHES}"
    seeds = batch_of(SEEDS, batch, BATCHES)
    Trials(lambda seed: run(trial(seed))).assert_kept(what, seeds, "groups", record_evidence)


@pytest.mark.parametrize("seed", [546, 1312, 1562, 1879])
def test_worlds_that_broke_a_promise_once_keep_it(seed: int) -> None:
    run(trial(seed))


@pytest.mark.parametrize("seed", range(3))
def test_without_faults_nothing_is_redelivered_although_consumers_join_and_leave(seed: int) -> None:
    world = calm_trial(seed)
    run(world)
    audit = world.audit("billing")
    assert audit.well
    assert audit.seen >= 50


def test_the_same_seed_replays_identically_in_another_process() -> None:
    """Also with another hash seed."""
    replay = (
        "from tests.simulation.trials import run, trial\n"
        "world = trial(5)\n"
        "run(world)\n"
        "print(world.simulation.trace.text())\n"
    )
    traces = []
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", replay]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        traces.append(done.stdout)
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 500


def test_a_trace_has_a_line_for_every_event_and_decision() -> None:
    world = trial(5)
    world.run(5)
    lines = list(world.simulation.trace)
    decided = [line for line in lines if line.mark is Mark.EVENT and line.actions]
    assert len(decided) > 20
    assert all(" => " in str(line) for line in decided)
    assert all(one.at <= other.at for one, other in pairwise(lines))


@pytest.mark.part("groups")
def test_virtual_time_passes_fast(record_evidence: RecordEvidence) -> None:
    run(trial(0))
    begun = time.process_time()
    for seed in range(1, 6):
        run(trial(seed))
    speed = 5 * SECONDS / (time.process_time() - begun)
    record_evidence("groups", "virtual seconds in a second of the simulator", round(speed), (), 0)
    assert speed > (SPEED_MIN if soaking() else SPEED_MIN / 4)
