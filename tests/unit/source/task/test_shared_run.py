"""Runs of one source as its tasks, in one process."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tailrace.backend.contract import Change, Transaction
from tailrace.errors import BackendUnavailable, ConfigError, Fenced, UnknownGroup
from tailrace.group.store import presence
from tailrace.hub.hub import Hub
from tailrace.source.catalog import SourceEntry, register_source
from tailrace.source.names import task_group
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.source.split_state import REMOVED_EARLY, begun_key
from tailrace.source.task.shared_run import SharedRun
from tailrace.subscription.store.shared_names import SOURCES
from tailrace.testing import MemoryBackend
from tailrace.testing.unreliable import StoreQuality, UnreliableBackend
from tests.support.sources.split_reader import SplitReader
from tests.support.topics import all_messages
from tests.support.waiting import DEADLINE_S, in_thread

GROUP = task_group("s")
READER = SplitReader(("a", "b", "c", "d"), rows=20)

Begin = Callable[..., SharedRun]


@pytest.fixture
def backend() -> UnreliableBackend:
    return UnreliableBackend(MemoryBackend(), random.Random(1))


@pytest.fixture
def hub(backend: UnreliableBackend) -> Iterator[Hub]:
    with Hub.from_backend(backend) as hub:
        hub.create_topic("log", partitions=1)
        hub.create_topic("letters", partitions=1)
        register_source(backend.store, "s", SourceEntry("log", "letters", "SplitReader", 0))
        yield hub


@pytest.fixture
def begin(hub: Hub) -> Iterator[Begin]:
    """Return what begins a run, which ends with the test at the latest."""
    with ExitStack() as runs:

        def begin(reader: SplitReader = READER, until: Until = Until.STOPPED) -> SharedRun:
            made = SharedRun(hub, "s", reader, hub.topic("log"), hub.topic("letters"), until)
            return runs.enter_context(made)

        yield begin


def step_until(condition: Callable[[], object], *runs: SharedRun) -> None:
    """Have runs step in turns until a condition is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        busy = [run.step() for run in runs]
        if not any(busy):
            runs[0].wait(0.005)


def values(hub: Hub) -> list[Any]:
    return sorted((each.value["s"], each.value["n"]) for each in all_messages(hub.topic("log")))


EVERYTHING = [(name, number) for name in "abcd" for number in range(20)]


def test_two_runs_share_the_splits_and_store_each_row_once(hub: Hub, begin: Begin) -> None:
    reader = SplitReader(("a", "b", "c", "d"), rows=20, delay_s=0.01)
    runs = [begin(reader, Until.NOW), begin(reader, Until.NOW)]
    seen: set[tuple[int, ...]] = set()

    def done() -> bool:
        seen.add(tuple(run.units for run in runs))
        return all(run.done for run in runs)

    step_until(done, *runs)
    assert values(hub) == EVERYTHING
    assert sum(run.rows for run in runs) == 80
    assert all(run.rows for run in runs)
    assert {run.tasks for run in runs} == {2}
    assert [run.leads for run in runs].count(True) == 1
    assert (2, 2) in seen


def test_the_other_run_reads_on_when_one_is_closed(hub: Hub, begin: Begin) -> None:
    first, second = begin(), begin()
    step_until(lambda: first.tasks == second.tasks == 2, first, second)
    first.close()
    step_until(lambda: second.tasks == 1 and second.leads, second)
    step_until(lambda: len(values(hub)) == 80, second)
    assert values(hub) == EVERYTHING


def test_a_paused_run_reads_nothing_and_keeps_its_units(hub: Hub, begin: Begin) -> None:
    run = begin()
    run.paused = True
    step_until(lambda: run.units == 4, run)
    for _ in range(20):
        run.step()
    assert run.paused
    assert values(hub) == []
    run.paused = False
    step_until(lambda: len(values(hub)) == 80, run)
    assert run.bytes > 0


def test_a_task_that_was_counted_as_dead_joins_again_under_another_name(
    hub: Hub, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    run = begin()
    step_until(lambda: run.units, run)
    dead = run.task
    presence.leave(hub.backend, GROUP, dead)
    step_until(lambda: run.task != dead, run)
    step_until(lambda: len(values(hub)) == 80, run)
    assert values(hub) == EVERYTHING
    assert f"task {dead} was counted as dead and joins again" in caplog.text


def test_a_task_that_cannot_join_again_yet_tries_until_it_can(
    hub: Hub, begin: Begin, backend: UnreliableBackend
) -> None:
    run = begin(SplitReader(("a", "b", "c", "d"), rows=20, batch=1))
    failed = 0
    for _ in range(3):
        step_until(lambda: run.units, run)
        dead = run.task
        presence.leave(backend, GROUP, dead)
        backend.quality = StoreQuality(failure=0.3)  # and a task needs a dozen calls to join
        failed += steps_despite_errors(run, partial(has_rejoined, run, dead))
        backend.quality = StoreQuality()
    assert failed
    step_until(lambda: len(values(hub)) == 80, run)
    assert values(hub) == EVERYTHING


def has_rejoined(run: SharedRun, dead: str) -> bool:
    return run.task != dead


def steps_despite_errors(run: SharedRun, reached: Callable[[], object]) -> int:
    """Have a run step until a condition is true. Return the number of errors of the store."""
    failed = 0
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline
        try:
            run.step()
        except BackendUnavailable:
            failed += 1
    return failed


def test_a_run_continues_after_an_outage_of_the_store(
    hub: Hub, begin: Begin, backend: UnreliableBackend
) -> None:
    run = begin()
    step_until(lambda: run.rows >= 5, run)
    backend.down = True
    steps = iter(range(10))
    assert steps_despite_errors(run, lambda: next(steps, None) is None)
    backend.down = False
    step_until(lambda: len(values(hub)) == 80, run)
    assert values(hub) == EVERYTHING


def test_a_source_that_an_earlier_version_began_is_not_shared(hub: Hub, begin: Begin) -> None:
    hub.backend.commit(Transaction(table={begun_key("s"): REMOVED_EARLY}))
    with pytest.raises(ConfigError, match=r"'s' was begun by an earlier version.*another name"):
        begin()


def test_a_run_that_reads_the_source_alone_ends_the_tasks(hub: Hub, begin: Begin) -> None:
    run = begin()
    step_until(lambda: run.units, run)
    with SourceRun(hub, "s", READER, hub.topic("log"), hub.topic("letters"), Until.NOW) as alone:
        with pytest.raises(Fenced):
            step_until(lambda: False, run)
        while not alone.done:
            alone.step()
    assert values(hub) == EVERYTHING


def test_a_source_that_is_deleted_ends_its_tasks(hub: Hub, begin: Begin) -> None:
    run = begin()
    step_until(lambda: run.units, run)
    hub.backend.store.commit(Change(writes={SOURCES + "s": None}))
    with pytest.raises(UnknownGroup):
        step_until(lambda: False, run)


def test_a_waiting_run_is_woken(begin: Begin) -> None:
    run = begin()
    waited: list[float] = []

    def wait() -> None:
        started = time.monotonic()
        while not waited_out.is_set():
            run.wait(DEADLINE_S)
        waited.append(time.monotonic() - started)

    waited_out = threading.Event()
    thread = in_thread(wait)
    waited_out.set()
    run.wake()
    thread.join(DEADLINE_S)
    assert waited
    assert waited[0] < DEADLINE_S
