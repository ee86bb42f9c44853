"""Each requested kind of fault happens, and no other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tailrace.backend.contract import Change
from tailrace.testing.faults import Faults
from tailrace.testing.groups import GroupWorld
from tailrace.testing.network import Quality
from tailrace.testing.trace import Line, Mark
from tailrace.testing.unreliable import StoreQuality

SECONDS = 30.0


def a_world(faults: Faults) -> GroupWorld:
    """Two processes that share a topic in which something happens, for a while."""
    world = GroupWorld(1, faults)
    world.topic("orders", partitions=2)
    for name in "ab":
        world.process(name).consumer("billing", "orders")
    world.produce("orders", [(f"k{n % 5}", n) for n in range(60)], every_s=0.5)
    world.run(SECONDS)
    return world


def noted(words: str) -> Callable[[Line], bool]:
    return lambda line: words in str(line.what)


def lost(line: Line) -> bool:
    return line.mark is Mark.LOST


@pytest.mark.parametrize(
    ("faults", "signs"),
    [
        (Faults(crash_every_s=5), [noted("crashes"), noted("starts as a.2")]),
        (Faults(pause_every_s=5), [noted("pauses"), noted("wakes")]),
        (Faults(cut_every_s=5), [noted("cannot reach"), noted("reaches"), lost]),
        (
            Faults(outage_every_s=5),
            [noted("the store no longer answers"), noted("the store does not answer")],
        ),
        (Faults(step_every_s=5), [lambda line: line.mark is Mark.CLOCK]),
        (Faults(network=Quality(loss=0.2)), [lost]),
        (Faults(store=StoreQuality(failure=0.2)), [noted("the store does not answer")]),
        (Faults(store=StoreQuality(unknown=0.2)), [noted("the answer of the store was lost")]),
        (Faults(store=StoreQuality(stalling=0.2)), [noted("the store stalls")]),
    ],
    ids=["crash", "pause", "cut", "outage", "step", "loss", "failure", "unknown", "stall"],
)
def test_a_fault_happens_only_when_it_is_requested(
    faults: Faults, signs: list[Callable[[Line], bool]]
) -> None:
    rough, calm = list(a_world(faults).simulation.trace), list(a_world(Faults()).simulation.trace)
    for sign in signs:
        assert any(map(sign, rough))
    assert not all(any(map(sign, calm)) for sign in signs)
    assert {line.mark for line in calm} <= {Mark.EVENT, Mark.NOTE, Mark.FAULT}


def test_wall_clocks_keep_their_steps() -> None:
    world = a_world(Faults(step_every_s=1))
    offsets_ms = {p.clock.now_ms() - round(world.now * 1000) for p in world.processes.values()}
    assert len(offsets_ms) == len(world.processes)


def test_clocks_run_faster_and_slower_than_true_time() -> None:
    world = a_world(Faults(drift=0.02))
    begun = {name: process.clock.monotonic() for name, process in world.processes.items()}
    world.run(100)
    passed = [p.clock.monotonic() - begun[name] for name, p in world.processes.items()]
    assert all(98 <= seconds <= 102 for seconds in passed)
    assert all(abs(seconds - 100) > 0.01 for seconds in passed)


def test_work_at_a_stalled_store_takes_the_stated_time() -> None:
    def elected_after_s(store: StoreQuality) -> float:
        world = GroupWorld(1, Faults(store=store))
        world.topic("orders", partitions=1)
        world.process("a").consumer("billing", "orders")
        return world.run_until(lambda: world.leader("billing") is not None, within_s=60)

    assert elected_after_s(StoreQuality()) < 0.1
    assert elected_after_s(StoreQuality(stalling=1.0, stalling_s=10.0)) > 1


def test_until_all_is_healed_another_may_reach_the_store_between_a_read_and_a_commit() -> None:
    world = GroupWorld(1)
    others = [worker for name in "ab" for worker in world.process(name).program.workers]
    reached: list[int] = []

    def reached_by(number: int) -> None:
        reached.append(number)

    for healed in (False, True):
        reached.clear()
        for number, worker in enumerate(others):
            worker.do(partial(reached_by, number))
        for number in range(1000):
            world.store_of("a").store.commit(Change(writes={f"x{number}": b""}))
        assert sorted(reached) == ([] if healed else list(range(len(others))))
        world.heal()
