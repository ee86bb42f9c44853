"""One split that becomes a thousand, while the tasks that read them die."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.source.reader import Split
from tailrace.testing.faults import Faults
from tailrace.testing.sources.script import ScriptedBatch, SourceScript
from tailrace.testing.sources.world import SourceWorld
from tailrace.testing.unreliable import StoreQuality
from tests.simulation.seeded_trials import Trials
from tests.support.counts import count
from tests.support.evidence import RecordEvidence

GENERATIONS = count("storm_generations", test=6, soak=10)
LEAVES = 2**GENERATIONS
STORM_S = 20.0
TASKS = "abcdefgh"
SEEDS = count("source_storms", test=2, soak=20)


def storm(random: Random) -> SourceScript:
    """Return a split that splits into two, and each of these again, to `LEAVES` without an end."""
    batches: dict[str, tuple[ScriptedBatch, ...]] = {}
    ends_s = {1: random.uniform(1, 3)}
    for number in range(1, 2 * LEAVES):
        at_s = ends_s[number]
        children: tuple[Split, ...] = ()
        if number < LEAVES:
            pair = (2 * number, 2 * number + 1)
            children = tuple(Split(f"s{child}", follows=(f"s{number}",)) for child in pair)
            for child in pair:
                ends_s[child] = at_s + random.uniform(0, 2 * STORM_S / GENERATIONS)
        batches[f"s{number}"] = (ScriptedBatch(1, children, at_s, finished=bool(children)),)
    return SourceScript([Split("s1")], batches)


def run(seed: int) -> SourceWorld:
    random = Random(f"storm {seed}")
    faults = Faults(
        crash_every_s=random.choice([1.0, 3.0]),
        store=StoreQuality(unknown=random.choice([0.0, 0.02])),
    )
    world = SourceWorld(seed, storm(random), faults)
    for name in TASKS:
        world.task_process(name).read()
    world.run(STORM_S)
    world.run_until_read(within_s=240.0)
    return world


@pytest.mark.part("sources")
@pytest.mark.timeout(3000)
def test_a_split_becomes_a_thousand_while_tasks_die(record_evidence: RecordEvidence) -> None:
    def balanced(seed: int) -> None:
        world = run(seed)
        views = [machine.others.views for machine in world.machines().values()]
        loads = [view.load for each in views for view in each.values()]
        assert loads == [LEAVES // len(TASKS)] * (len(TASKS) * (len(TASKS) - 1))

    what = f"simulated storms from 1 to {LEAVES} splits over {len(TASKS)} tasks that die"
    Trials(balanced).assert_kept(what, range(SEEDS), "sources", record_evidence)
