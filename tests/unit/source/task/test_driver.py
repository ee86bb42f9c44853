"""The driver of a task: actions that meet errors, and a leader that is deposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tailrace.backend.contract import FENCES, Hold, Transaction, raise_fence
from tailrace.errors import BackendUnavailable
from tailrace.group.store.definition import unit_fence
from tailrace.group.store.presence import HOLDS
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.names import LEADER, task_group
from tailrace.source.reader import Batch, Split, Until
from tailrace.source.reading import SplitReading
from tailrace.source.split_state import read_splits, table_of
from tailrace.source.task.driver import StoredEpoch, TaskDriver
from tailrace.source.task.machine import TaskMachine
from tailrace.source.task.membership import Membership
from tailrace.source.unit_status import UnitStatus
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.unit.source.scripted_reader import Script, rows, scripted, values

SCRIPT: Script = {
    "a": [Batch(rows("a1"), 1, children=(Split("b", follows=("a",)),), finished=True)],
    "b": [Batch(rows("b1"), 1)],
}
FIRST = Split("a")

LEASE_S = 3.0

Joined = Callable[[str], TaskDriver]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def holds() -> dict[str, Hold]:
    """Return what the processes of the tasks hold."""
    return {}


@pytest.fixture
def joined(
    hub: Hub,
    backend: FaultyBackend,
    log: Topic[Any],
    letters: Topic[Any],
    clock: ManualClock,
    holds: dict[str, Hold],
) -> Joined:
    """Return a task that is a member, in a process of its own."""

    def join(name: str) -> TaskDriver:
        holds[name] = backend.hold(HOLDS + name, name)
        membership = Membership(backend, "s", name, name, clock, lease_s=LEASE_S)
        reading = SplitReading(
            SourceOutput("s", log, letters), scripted(SCRIPT, FIRST), Until.STOPPED, clock
        )
        made = TaskDriver(
            backend,
            "s",
            TaskMachine(name, ends=False),
            reading,
            membership,
            clock=clock,
            bytes_max=4000,
            make_id=lambda: f"epoch of {name}",
        )
        membership.enter()
        return made

    return join


def grant(backend: FaultyBackend) -> int:
    """Return the epoch of a new grant of the leadership."""
    return raise_fence(backend.store, unit_fence(task_group("s"), LEADER)).epoch


def steps(driver: TaskDriver, count: int = 60) -> None:
    for _ in range(count):
        driver.step()


def stored_epoch(backend: FaultyBackend) -> StoredEpoch | None:
    entry = backend.store.get(FENCES + table_of("s"))
    if entry is None or not entry.value:
        return None
    return msgspec.json.decode(entry.value, type=StoredEpoch)


def test_a_leader_stores_the_first_splits_and_the_epoch_and_reads(
    joined: Joined, backend: FaultyBackend, log: Topic[Any]
) -> None:
    driver = joined("a")
    driver.lead(grant(backend))
    steps(driver)
    assert stored_epoch(backend) == StoredEpoch("epoch of a", 1, ("a",), "a")
    assert values(log) == ["a1", "b1"]
    assert driver.machine.units == {"a": UnitStatus.FINISHED, "b": UnitStatus.READ}


def test_without_a_leader_nothing_is_read(joined: Joined, log: Topic[Any]) -> None:
    driver = joined("a")
    steps(driver)
    assert values(log) == []
    assert driver.machine.epoch is None


def test_a_leader_that_was_deposed_stores_no_first_splits_and_goes_on_as_a_member(
    joined: Joined, backend: FaultyBackend
) -> None:
    driver = joined("a")
    driver.lead(grant(backend))
    grant(backend)
    steps(driver)
    assert not read_splits(backend, "s").begun
    assert stored_epoch(backend) is None
    assert not driver.machine.is_leader


def test_a_leader_that_is_deposed_when_it_stores_the_first_splits_leads_no_longer(
    joined: Joined, backend: FaultyBackend, log: Topic[Any]
) -> None:
    driver = joined("a")

    def depose(transaction: Transaction) -> None:
        if transaction.absent:
            backend.before = lambda _: None
            grant(backend)

    backend.before = depose
    driver.lead(grant(backend))
    steps(driver)
    assert not read_splits(backend, "s").begun
    assert not driver.machine.is_leader
    driver.lead(grant(backend))
    steps(driver)
    assert values(log) == ["a1", "b1"]


def test_a_leader_that_is_deposed_before_it_stores_the_epoch_leads_no_longer(
    joined: Joined, backend: FaultyBackend
) -> None:
    driver = joined("a")
    driver.lead(grant(backend))
    while not read_splits(backend, "s").begun:
        driver.step()
    grant(backend)
    steps(driver)
    assert stored_epoch(backend) is None
    assert not driver.machine.is_leader


def test_what_met_an_error_is_done_again_by_the_next_step(
    joined: Joined, backend: FaultyBackend, log: Topic[Any]
) -> None:
    driver = joined("a")
    driver.lead(grant(backend))
    failed = set()

    def fail_once(transaction: Transaction) -> None:
        what = repr(transaction)
        if what not in failed:
            failed.add(what)
            raise BackendUnavailable("the store does not answer", "try again")

    backend.before = fail_once
    for _ in range(200):
        try:
            driver.step()
        except BackendUnavailable:
            continue
    assert len(failed) > 5
    assert values(log) == ["a1", "b1"]


def test_a_task_that_was_removed_from_the_members_releases_everything(
    joined: Joined, backend: FaultyBackend
) -> None:
    driver = joined("a")
    driver.lead(grant(backend))
    steps(driver)
    assert driver.machine.units
    joined("other")  # which removes it as dead
    Membership(backend, "s", "other", "other", ManualClock(), lease_s=LEASE_S).remove(["a"])
    driver.look_for_members()
    steps(driver)
    assert driver.rejoins
    assert driver.machine.ended


def test_the_leader_removes_a_member_that_is_dead_and_shares_its_splits(
    joined: Joined, backend: FaultyBackend, clock: ManualClock, holds: dict[str, Hold]
) -> None:
    first, second = joined("a"), joined("b")
    first.lead(grant(backend))
    for _ in range(60):
        steps(first, 2)
        steps(second, 2)
        clock.advance(0.1)
        holds["b"].beat()
    assert first.machine.members == second.machine.members == {"a", "b"}
    second.lead(grant(backend))
    for _ in range(60):
        steps(second, 2)
        clock.advance(0.1)
    assert second.machine.members == {"b"}
    assert second.machine.units == {"a": UnitStatus.FINISHED, "b": UnitStatus.READ}
    steps(first)
    assert first.rejoins


def test_a_run_that_takes_the_whole_source_over_ends_the_tasks(
    joined: Joined, backend: FaultyBackend
) -> None:
    driver = joined("a")
    driver.lead(grant(backend))
    while stored_epoch(backend) is None:
        driver.step()
    raise_fence(backend.store, table_of("s"))
    steps(driver)
    assert driver.taken_over is not None
