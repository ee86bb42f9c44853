"""Followers are woken by commits of other processes, also if the process is killed."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tests.support.counts import count, soaking
from tests.support.processes import Child, Report, fork, kill_now
from tests.support.records import P0, append, create, records, values

pytestmark = pytest.mark.part("processes")

WAKE_S = 20.0
"""By then a follower that was not woken is not going to be."""

WAKE_P50_MS = 25.0 if soaking() else WAKE_S * 1000
"""How soon half of the pushes wake a follower. Only the soak has the machine for itself."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with closing(EmbeddedBackend.open(tmp_path, sync="none")) as backend:
        create(backend)
        yield backend


def _say_when_seen(report: Report, directory: Path, pushes: int) -> None:
    """Child: report when each record was seen, by the clock that all processes share."""
    with (
        closing(EmbeddedBackend.open(directory)) as backend,
        closing(backend.follower()) as follower,
    ):
        report("ready")
        for number in range(pushes):
            follower.arm()
            while backend.log.bounds(P0).end <= number:
                assert follower.wait(WAKE_S)
                follower.arm()
            report(time.monotonic())


def test_every_push_wakes_a_follower_in_another_process(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    pushes = count("wakings", test=100, soak=1000)
    child = Child(_say_when_seen, tmp_path, pushes)
    assert child.next_report() == "ready"
    waits_ms = []
    for _ in range(pushes):
        begun = time.monotonic()
        hub.commit(Transaction(((P0, records(b"x")),)))
        waits_ms.append((child.next_report() - begun) * 1000)
    p50, p99 = statistics.median(waits_ms), statistics.quantiles(waits_ms, n=100)[98]
    print(f"push to follower in another process: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    assert p50 < WAKE_P50_MS


def _fork_with_a_follower(report: Report, directory: Path) -> None:
    """Child: a follower that parent and forked child both go on to use."""
    backend = EmbeddedBackend.open(directory)
    used, uses = os.pipe()
    with closing(backend.follower()) as follower:
        follower.arm()

        def use() -> None:
            follower.arm()
            append(backend, P0, b"child")
            seen = follower.wait(WAKE_S)
            follower.arm()
            os.write(uses, b"seen" if seen and not follower.wait(0.0) else b"not")
            signal.pause()

        forked = fork(use)
        report(os.read(used, 4))
        report(follower.wait(WAKE_S))
        kill_now(forked)


def test_a_follower_of_the_parent_misses_no_commit_that_its_forked_child_has_seen(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_fork_with_a_follower, tmp_path)
    assert list(child.rest()) == [b"seen", True]


def _die_unseen(report: Report, directory: Path, forks: bool) -> None:
    """Child: be killed between COMMIT and the waking of followers, with a forked child or none."""

    def reach(point: str) -> None:
        if point == "committed":
            os.kill(os.getpid(), signal.SIGKILL)

    backend = EmbeddedBackend.open(directory, reach=reach)
    report(fork(signal.pause) if forks else 0)
    append(backend, P0, b"committed")


@pytest.mark.parametrize("forks", [False, True])
def test_a_commit_whose_process_is_killed_before_waking_followers_still_wakes_them(
    forks: bool, hub: EmbeddedBackend, tmp_path: Path
) -> None:
    with closing(hub.follower()) as follower:
        child = Child(_die_unseen, tmp_path, forks)
        while True:
            follower.arm()
            if hub.log.bounds(P0).end:
                break
            assert follower.wait(WAKE_S)
    survivor = child.next_report()
    if survivor:
        kill_now(survivor)
    assert list(child.rest()) == []
    assert child.exit_code == -9
    assert values(hub, P0) == [b"committed"]
