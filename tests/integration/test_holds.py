"""Names held by processes: one at a time, and free at once when the holder is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tailrace.backend.embedded import EmbeddedBackend, holds
from tailrace.errors import Busy, InvalidValue
from tests.support.counts import count
from tests.support.processes import Child, Report, ended_well, fork, kill_now

pytestmark = pytest.mark.part("fences")

NAME = "pipeline/lake"
TAKES = count("hold_takes", test=50, soak=1000)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with closing(EmbeddedBackend.open(tmp_path, sync="none")) as backend:
        yield backend


def _hold_for_ever(report: Report, directory: Path, owner: str) -> None:
    backend = EmbeddedBackend.open(directory)
    backend.hold(NAME, owner)
    report("held")
    signal.pause()


def test_a_name_held_by_another_process_is_refused_until_it_is_killed(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_hold_for_ever, tmp_path, "driver 7")
    assert child.next_report() == "held"
    assert hub.holder(NAME) == "driver 7"
    with pytest.raises(Busy, match="driver 7"):
        hub.hold(NAME, "driver 8")
    list(child.kill())
    assert hub.holder(NAME) is None
    with hub.hold(NAME, "8"):
        assert hub.holder(NAME) == "8"


def test_two_opened_hubs_of_one_process_hold_a_name_one_at_a_time(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    with closing(EmbeddedBackend.open(tmp_path)) as other:
        hub.hold(NAME, "one")
        with pytest.raises(Busy, match="one"):
            other.hold(NAME, "other")
        assert other.holder(NAME) == "one"


def test_closing_a_hub_releases_its_holds(hub: EmbeddedBackend, tmp_path: Path) -> None:
    other = EmbeddedBackend.open(tmp_path)
    hold = other.hold(NAME, "other")
    other.close()
    with hub.hold(NAME, "one"):
        hold.release()
        assert hub.holder(NAME) == "one"


def _fork_and_wait(report: Report, directory: Path) -> None:
    backend = EmbeddedBackend.open(directory)
    hold = backend.hold(NAME, "parent")

    def live_on() -> None:
        hold.release()
        report((os.getpid(), backend.holder(NAME)))
        while True:
            signal.pause()

    fork(live_on)
    signal.pause()


def test_a_forked_child_holds_nothing_and_frees_nothing(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    parent = Child(_fork_and_wait, tmp_path)
    survivor, seen = parent.next_report()
    try:
        assert seen == "parent"
        assert hub.holder(NAME) == "parent"
        list(parent.reports_for(0.0))
        kill_now(parent.pid)
        dead = False
        while hub.holder(NAME) is not None:
            assert not dead, "the forked child keeps the name held"
            dead = not os.path.exists(f"/proc/{parent.pid}")
        hub.hold(NAME, "next").release()
    finally:
        kill_now(survivor)


def test_a_heartbeat_is_seen_by_other_processes_and_a_forked_child_gives_none(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    with closing(EmbeddedBackend.open(tmp_path)) as other, hub.hold(NAME, "parent") as hold:
        before = other.beats(NAME)

        def beat_in_vain() -> None:
            assert not hold.beat()
            assert hub.beats(NAME) == before

        assert ended_well(fork(beat_in_vain))
        assert other.beats(NAME) == before
        assert hold.beat()
        assert other.beats(NAME) not in (None, before)


def test_a_killed_holder_gives_no_heartbeat(hub: EmbeddedBackend, tmp_path: Path) -> None:
    child = Child(_hold_for_ever, tmp_path, "driver 7")
    assert child.next_report() == "held"
    assert hub.beats(NAME) is not None
    list(child.kill())
    assert hub.beats(NAME) is None


def test_a_child_may_hold_a_name_that_its_parent_released(hub: EmbeddedBackend) -> None:
    hub.hold(NAME, "parent").release()

    def take() -> None:
        with hub.hold(NAME, "child"):
            assert hub.holder(NAME) == "child"

    assert ended_well(fork(take))
    assert hub.holder(NAME) is None


def test_a_program_started_by_the_holder_does_not_hold_the_name(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    hold = hub.hold(NAME, "one")
    program = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
    )
    try:
        _check_no_hold_is_open(program.pid)
        hold.release()
        hub.hold(NAME, "two")
    finally:
        program.communicate(b"\n")


def _take_again_and_again(report: Report, directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    report("started")
    with closing(EmbeddedBackend.open(directory)) as backend:
        taken = 0
        while taken < TAKES:
            with suppress(Busy), backend.hold(NAME, f"process {seed}"):
                os.close(os.open(directory / "only-one", os.O_CREAT | os.O_EXCL))
                assert backend.holder(NAME) == f"process {seed}"
                if chance.random() < 0.2:
                    os.sched_yield()
                os.unlink(directory / "only-one")
                taken += 1
        report(taken)


def test_processes_that_contend_hold_a_name_one_at_a_time(tmp_path: Path) -> None:
    EmbeddedBackend.open(tmp_path, sync="none").close()
    children = [Child(_take_again_and_again, tmp_path, seed) for seed in range(3)]
    assert [child.next_report() for child in children] == ["started"] * 3
    assert [list(child.rest()) for child in children] == [[TAKES]] * 3
    assert [child.exit_code for child in children] == [0] * 3


def test_a_holder_that_forks_in_a_thread_while_it_takes_names_keeps_none_held(
    hub: EmbeddedBackend,
) -> None:
    """No child shares a hold that it does not know of."""
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            hub.hold(NAME, "thread").release()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        for _ in range(20):
            assert ended_well(fork(_check_no_hold_is_open))
    finally:
        done.set()
        thread.join(60)


def _check_no_hold_is_open(pid: int | str = "self") -> None:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            assert "hub.holds" not in os.readlink(entry.path)


def test_names_and_owners_have_bounds(hub: EmbeddedBackend) -> None:
    for name, owner in (("x" * (holds.NAME_BYTES_MAX + 1), "me"), ("x", "é" * 501)):
        with pytest.raises(InvalidValue):
            hub.hold(name, owner)


def test_a_released_name_leaves_no_file(hub: EmbeddedBackend, tmp_path: Path) -> None:
    hub.hold(NAME, "one").release()
    assert list((tmp_path / "hub.holds").iterdir()) == []
