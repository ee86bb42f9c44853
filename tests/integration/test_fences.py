"""Processes stopped in the middle of a transaction: none writes behind its fence, none blocks for
ever."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.contract import Change, TableKey, Transaction, raise_fence
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import BackendUnavailable, Fenced
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report, StopAt, await_stop, continued_after, stop
from tests.support.records import P0, P1, P2, append, create, read, records, values

pytestmark = pytest.mark.part("fences")

BEFORE_THE_COMMIT_LOCK = ("locked", "placed", "written", "synced")
INSIDE_THE_COMMIT_LOCK = ("commit-locked", "applied", "commit", "committed")
LOCK_TIMEOUT_S = 0.5
NOTICED_S = 10.0
"""How soon a caller knows that a lock of `LOCK_TIMEOUT_S` cannot be had, on a busy machine."""

UNIT = "unit"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=LOCK_TIMEOUT_S)) as backend:
        create(backend)
        yield backend


def _commit_under_fences(report: Report, directory: Path, rounds: int) -> None:
    """Child: make one transaction a round, each under its own fence, and stop within it."""
    stop_at = StopAt(report)
    with closing(EmbeddedBackend.open(directory, reach=stop_at)) as backend:
        for number in range(rounds):
            value = b"%d" % number
            appends = ((P0, records(value)), (P1, records(value, value)), (P2, records(value)))
            fence = raise_fence(backend.store, UNIT)
            table = {TableKey("t", value): value}
            stop_at.point = BEFORE_THE_COMMIT_LOCK[number % len(BEFORE_THE_COMMIT_LOCK)]
            try:
                backend.commit(Transaction(appends[number % 3 :], table, fence))
                report("stored")
            except Fenced:
                report("fenced")


def test_a_process_stopped_before_the_commit_lock_writes_nothing_once_its_fence_is_raised(
    hub: EmbeddedBackend, tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    rounds = count("fence_rounds", test=24, soak=200)
    child = Child(_commit_under_fences, tmp_path, rounds)
    violations = []
    left_alone = []
    for number in range(rounds):
        stopped = await_stop(child)
        with continued_after(stopped):
            if number % 6 == 5:
                left_alone.append(b"%d" % number)
            else:
                raise_fence(hub.store, UNIT)
        outcome = child.next_report()
        if outcome != ("stored" if number % 6 == 5 else "fenced"):
            violations.append(f"round {number}, stopped at {stopped.point}: {outcome}")
    assert list(child.rest()) == []
    stored = {value for partition in (P0, P1, P2) for value in values(hub, partition)}
    stored |= {key for key, _ in hub.table.scan("t")}
    violations += [f"{value!r} is stored" for value in stored - set(left_alone)]
    record_evidence(
        "fences", "stopped before the commit lock, fence raised", rounds, [], len(violations)
    )
    assert violations == []
    assert stored == set(left_alone)
    assert values(hub, P2) == left_alone


def _append_under_newest_fence(report: Report, directory: Path, rounds: int) -> None:
    """Child: append in a loop. When fenced, report it and raise the fence again."""
    with closing(EmbeddedBackend.open(directory)) as backend:
        for _ in range(rounds):
            fence = raise_fence(backend.store, UNIT)
            report(fence.epoch)
            try:
                while True:
                    backend.commit(Transaction(((P0, records(b"%d" % fence.epoch)),), fence=fence))
            except Fenced:
                report("fenced")


def test_a_process_stopped_anywhere_appends_nothing_after_the_end_seen_when_its_fence_was_raised(
    hub: EmbeddedBackend, tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    rounds = count("fence_instants", test=12, soak=200)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    child = Child(_append_under_newest_fence, tmp_path, rounds)
    violations = []
    for _ in range(rounds):
        epoch = child.next_report()
        while True:
            time.sleep(chance.uniform(0.0, 0.01))
            with continued_after(stop(child.pid)):
                try:
                    raise_fence(hub.store, UNIT)
                except BackendUnavailable:
                    continue  # it was stopped inside the commit lock
                end = hub.log.bounds(P0).end
                break
        assert child.next_report() == "fenced"
        if any(found.value == b"%d" % epoch for found in read(hub, P0, end)):
            violations.append(f"epoch {epoch} appended behind {end}")
    assert list(child.rest()) == []
    record_evidence(
        "fences", "stopped at random instants, fence raised", rounds, [seed], len(violations)
    )
    assert violations == []


def _commit_once(report: Report, directory: Path, point: str) -> None:
    """Child: make one append that stops at the point until it is continued."""
    stop_at = StopAt(report)
    with closing(EmbeddedBackend.open(directory, reach=stop_at)) as backend:
        stop_at.point = point
        append(backend, P0, b"stopped")
        report("stored")


def _assert_unavailable(naming: int, call: Callable[[], object], what: str) -> None:
    begun = time.monotonic()
    with pytest.raises(BackendUnavailable, match=f"process {naming} holds it"):
        call()
    took = time.monotonic() - begun
    assert LOCK_TIMEOUT_S <= took < NOTICED_S, f"{what} took {took:.1f} s"


@pytest.mark.parametrize("point", INSIDE_THE_COMMIT_LOCK)
def test_a_process_stopped_inside_the_commit_lock_is_named_in_time_and_all_continue_after_it(
    point: str, hub: EmbeddedBackend, tmp_path: Path
) -> None:
    append(hub, P0, b"before")
    child = Child(_commit_once, tmp_path, point)
    stopped = await_stop(child)
    with continued_after(stopped):
        append_elsewhere = Transaction(((P1, records(b"meanwhile")),))
        _assert_unavailable(stopped.pid, lambda: hub.commit(append_elsewhere), "an append")
        change = Change(writes={"k": b"v"})
        _assert_unavailable(stopped.pid, lambda: hub.store.commit(change), "a change")
        visible = [b"before", b"stopped"] if point == "committed" else [b"before"]
        assert values(hub, P0) == visible
    assert list(child.rest()) == ["stored"]
    append(hub, P1, b"after")
    append(hub, P0, b"after")
    assert values(hub, P0) == [b"before", b"stopped", b"after"]
    assert values(hub, P1) == [b"after"]
    assert hub.store.get("k") is None


@pytest.mark.parametrize("point", BEFORE_THE_COMMIT_LOCK)
def test_a_process_stopped_with_a_partition_lock_is_named_and_blocks_that_partition_alone(
    point: str, hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_commit_once, tmp_path, point)
    stopped = await_stop(child)
    with continued_after(stopped):
        both = Transaction(((P0, records(b"meanwhile")), (P1, records(b"meanwhile"))))
        _assert_unavailable(stopped.pid, lambda: hub.commit(both), "an append")
        append(hub, P1, b"alone")
    assert list(child.rest()) == ["stored"]
    append(hub, P0, b"after")
    assert values(hub, P0) == [b"stopped", b"after"]
    assert values(hub, P1) == [b"alone"]


def test_opening_a_hub_whose_commit_lock_is_held_by_a_stopped_process_names_the_process(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_commit_once, tmp_path, "commit")
    stopped = await_stop(child)
    with continued_after(stopped):
        _assert_unavailable(
            stopped.pid,
            lambda: EmbeddedBackend.open(tmp_path, lock_timeout_s=LOCK_TIMEOUT_S),
            "opening",
        )
    assert list(child.rest()) == ["stored"]
    EmbeddedBackend.open(tmp_path, lock_timeout_s=LOCK_TIMEOUT_S).close()
