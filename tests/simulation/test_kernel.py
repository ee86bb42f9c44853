"""The simulator: the same seed replays the same run, and faults do what they say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tailrace.backend.contract import Change
from tailrace.errors import BackendUnavailable, OutcomeUnknown
from tailrace.testing.faults import Faults
from tailrace.testing.memory import MemoryBackend
from tailrace.testing.network import Quality
from tailrace.testing.process import Process
from tailrace.testing.simulation import Simulation, Violation
from tailrace.testing.trace import LEGEND, Mark
from tailrace.testing.unreliable import StoreQuality, UnreliableBackend
from tests.simulation.leases import HastyAsker, LeaseWorld

ROUGH = Faults(
    network=Quality(loss=0.1, doubling=0.1, straggling=0.2, straggling_s=3.0),
    crash_every_s=5,
    pause_every_s=5,
    cut_every_s=5,
    drift=0.02,
)


def trace_of(seed: int, faults: Faults = ROUGH, seconds: float = 30) -> str:
    world = LeaseWorld(seed, faults)
    world.simulation.run(seconds)
    return world.simulation.trace.text(hiding={Mark.CLOCK})


def test_the_same_seed_gives_the_same_trace() -> None:
    assert trace_of(7) == trace_of(7)
    assert trace_of(7) != trace_of(8)


def test_wall_clocks_that_step_by_an_hour_change_no_decision() -> None:
    stepping = Faults(
        network=ROUGH.network, crash_every_s=5, pause_every_s=5, cut_every_s=5, drift=0.02,
        step_every_s=0.3, step_s=3600,
    )  # fmt: skip
    world = LeaseWorld(7, stepping)
    world.simulation.run(30)
    assert sum(line.mark is Mark.CLOCK for line in world.simulation.trace) > 50
    assert world.simulation.trace.text(hiding={Mark.CLOCK}) == trace_of(7)


@pytest.mark.parametrize("seed", range(10))
def test_a_sound_protocol_keeps_its_invariant_under_faults_and_continues_after_them(
    seed: int,
) -> None:
    world = LeaseWorld(seed, ROUGH)
    world.simulation.run(60)
    assert world.lent > 100
    world.injector.heal()
    took_s = world.simulation.run_until(lambda: bool(world.having_the_key()), within_s=5)
    assert took_s <= 5


def test_an_unsound_protocol_is_found_by_some_seed_and_found_again_by_the_same() -> None:
    def first_violation() -> Violation:
        for seed in range(20):
            try:
                LeaseWorld(seed, ROUGH, HastyAsker).simulation.run(60)
            except Violation as violation:
                return violation
        raise AssertionError("nothing was found")

    one, other = first_violation(), first_violation()
    assert "all have the key" in one.what
    assert (one.seed, one.at) == (other.seed, other.at)
    assert str(one) == str(other)
    assert LEGEND in str(one)
    assert f"seed {one.seed}" in str(one)


class Recorder:
    """A machine that only writes down what it gets."""

    tick = "tick"

    def __init__(self) -> None:
        self.machine = self
        self.handled: list[tuple[str, Any]] = []
        self.validated_after: list[int] = []
        self.due: float | None = None

    def handle(self, event: Any, now: float) -> list[Any]:
        if event == self.tick:
            self.due = None
        self.handled.append((event, now))
        return []

    def deadline(self) -> float | None:
        return self.due

    def validate(self) -> None:
        """Whatever comes is right."""
        self.validated_after.append(len(self.handled))

    def perform(self, action: Any) -> None:
        raise AssertionError(action)

    def receive(self, sender: str, message: Any) -> Any:
        return message

    def end(self) -> None:
        """There is nothing to clear away."""

    @property
    def events(self) -> list[Any]:
        return [event for event, _ in self.handled]


def recording(simulation: Simulation) -> tuple[Process, list[Recorder]]:
    """A process, and a recorder for each of its lives."""
    lives: list[Recorder] = []

    def boot(process: Process) -> Recorder:
        lives.append(Recorder())
        return lives[-1]

    process = Process(simulation, "a", boot)
    process.start()
    return process, lives


def test_a_paused_process_that_wakes_reads_its_input_before_the_clock() -> None:
    simulation = Simulation(1)
    process, [recorder] = recording(simulation)
    recorder.due = process.clock.monotonic() + 1
    process.post("first")
    simulation.run(0.1)
    process.pause(seconds=5)
    simulation.after(1, lambda: process.post("second"))
    simulation.after(3, lambda: process.post("third"))
    simulation.run(4)
    assert recorder.events == ["first"]
    simulation.run(4)
    assert recorder.events == ["first", "second", "third", "tick"]
    assert recorder.handled[1][1] - recorder.handled[0][1] == pytest.approx(5.1, abs=0.01)


def test_a_machine_is_validated_after_every_event() -> None:
    simulation = Simulation(1)
    process, [recorder] = recording(simulation)
    recorder.due = process.clock.monotonic() + 1
    process.post("first")
    simulation.run(5)
    assert recorder.events == ["first", "tick"]
    assert recorder.validated_after == [1, 2]


def test_a_thread_of_a_paused_process_completes_its_work_on_waking() -> None:
    simulation = Simulation(1)
    process, _ = recording(simulation)
    done: list[float] = []
    process.after(1, lambda: done.append(simulation.now))
    process.pause(seconds=5)
    simulation.run(10)
    assert done == [pytest.approx(5, abs=0.01)]


def test_a_crashed_process_loses_its_state_and_the_messages_to_its_former_incarnation() -> None:
    simulation = Simulation(1)
    process, lives = recording(simulation)
    process.pause()
    process.post("waiting")
    process.after(1, lambda: process.post("later"))
    process.crash()
    process.post("to the dead")
    process.start()
    simulation.run(5)
    assert [recorder.events for recorder in lives] == [[], []]
    assert process.token == "a.2"


def test_each_process_has_its_own_clock() -> None:
    simulation = Simulation(1)
    process, _ = recording(simulation)
    start, wall_ms = process.clock.monotonic(), process.clock.now_ms()
    process.clock.step(-3_600_000)
    simulation.run(10)
    assert process.clock.monotonic() - start == pytest.approx(10)
    assert process.clock.now_ms() - wall_ms == -3_590_000


def test_a_condition_that_is_not_reached_in_time_is_a_violation() -> None:
    simulation = Simulation(3)
    with pytest.raises(Violation, match="peace was not reached within 5 s"):
        simulation.run_until(lambda: False, within_s=5, what="peace")
    assert simulation.now == 5


def test_a_store_that_fails_does_nothing_and_one_of_unknown_outcome_does_it_half_the_time() -> None:
    memory = MemoryBackend()
    backend = UnreliableBackend(memory, random.Random(1))
    backend.down = True
    with pytest.raises(BackendUnavailable):
        backend.store.commit(Change(writes={"x": b"1"}))
    with pytest.raises(BackendUnavailable):
        backend.store.get("x")
    backend.down = False
    assert backend.store.get("x") is None
    backend.quality = StoreQuality(unknown=1.0)
    for number in range(100):
        with pytest.raises(OutcomeUnknown):
            backend.store.commit(Change(writes={f"y{number}": b""}))
    assert 30 < len(memory.store.scan("y")) < 70
    backend.quality = StoreQuality()
    assert backend.store.commit(Change(writes={"x": b"1"})) > 0


def test_a_number_of_commits_can_be_made_to_fail() -> None:
    memory = MemoryBackend()
    backend = UnreliableBackend(memory, random.Random(1))
    backend.commits_to_fail = 10
    for number in range(10):
        with pytest.raises(OutcomeUnknown):
            backend.store.commit(Change(writes={f"x{number}": b""}))
    assert len(memory.store.scan("x")) == 5
    backend.store.commit(Change(writes={"x": b""}))
