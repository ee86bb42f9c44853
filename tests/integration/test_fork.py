"""Forks of a process with an open hub: no process is blocked, and parent and child continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

import tailrace
from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import HubClosed
from tests.support.counts import count
from tests.support.processes import Child, Report, await_death, ended_well, fork, kill_now
from tests.support.records import P0, P1, append, create, records, values

pytestmark = pytest.mark.part("fences")

AT_ONCE_S = 5.0
"""A partition that a dead process held takes appends within this, on a busy machine."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=AT_ONCE_S)) as backend:
        create(backend)
        yield backend


def _live_on(report: Report) -> NoReturn:
    """Fork a child that sleeps for ever."""
    report(os.getpid())
    while True:
        signal.pause()


def _fork_and_die(report: Report, directory: Path, point: str, in_thread: bool) -> None:
    """Child: fork a sleeping child at the point of an append, and be killed there."""
    armed = False

    def reach(reached: str) -> None:
        if armed and reached == point:
            forks = threading.Thread(target=fork, args=(lambda: _live_on(report),))
            if in_thread:
                forks.start()
                forks.join()
            else:
                forks.run()
            os.kill(os.getpid(), signal.SIGKILL)

    backend = EmbeddedBackend.open(directory, reach=reach)
    armed = True
    append(backend, P0, b"never")


@pytest.mark.parametrize(
    ("point", "in_thread"),
    [
        *((point, True) for point in ("locked", "written", "commit-locked", "committed")),
        *((point, False) for point in ("locked", "commit-locked", "applied", "commit")),
    ],
)
def test_a_killed_process_with_a_living_forked_child_blocks_no_other_process(
    point: str, in_thread: bool, hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_fork_and_die, tmp_path, point, in_thread)
    survivor = child.next_report()
    try:
        await_death(child.pid)
        append(hub, P0, b"at once")
        with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=AT_ONCE_S)) as opened:
            append(opened, P1, b"at once")
    finally:
        kill_now(survivor)
    assert values(hub, P0) == ([b"never"] if point == "committed" else []) + [b"at once"]


def _lock_pids(file: Path) -> set[int]:
    """Return the processes that hold POSIX locks of a file."""
    inode = str(file.stat().st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {int(line[4]) for line in lines if line[5].rpartition(":")[2] == inode}


def _use_in_fork(report: Report, directory: Path) -> None:
    """Child: fork a child that uses the hub and stays, report its process ID, and stay too."""
    backend = EmbeddedBackend.open(directory)
    append(backend, P0, b"parent")

    def use() -> None:
        append(backend, P0, b"child")
        _live_on(report)

    fork(use)
    signal.pause()


def test_a_forked_child_that_uses_the_hub_holds_locks_of_its_own_on_the_database(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_use_in_fork, tmp_path)
    forked = child.next_report()
    try:
        for name in ("hub.db", "hub.db-shm"):
            assert {os.getpid(), child.pid, forked} <= _lock_pids(tmp_path / name)
    finally:
        kill_now(forked)
        list(child.kill())
    assert values(hub, P0) == [b"parent", b"child"]


def _commit_and_fork(report: Report, directory: Path, forks: int) -> None:
    """Child: fork children that commit and read, while three threads commit and two read."""
    backend = EmbeddedBackend.open(directory)
    done = threading.Event()

    def commit() -> None:
        while not done.is_set():
            backend.commit(Transaction(((P0, records(b"parent")),)))

    def read() -> None:
        end = 0
        while not done.is_set():
            end = backend.log.read(P0, end, 1 << 20).next_offset

    threads = [threading.Thread(target=work) for work in (commit, commit, commit, read, read)]
    for thread in threads:
        thread.start()

    def use(number: int) -> None:
        signal.alarm(60)
        append(backend, P1, b"%d" % number, b"%d" % number)
        assert b"%d" % number in values(backend, P1)
        assert values(backend, P0)[:1] == [b"parent"]

    append(backend, P0, b"parent")
    for number in range(forks):
        pid = fork(partial(use, number))
        report((number, ended_well(pid)))
    done.set()
    for thread in threads:
        thread.join()
    report(len(values(backend, P0)))


def test_a_child_forked_while_other_threads_commit_and_read_can_use_the_hub(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    forks = count("forks", test=15, soak=300)
    child = Child(_commit_and_fork, tmp_path, forks)
    *outcomes, stored = child.rest()
    assert outcomes == [(number, True) for number in range(forks)]
    assert child.exit_code == 0
    assert values(hub, P1) == [b"%d" % number for number in range(forks) for _ in range(2)]
    assert len(values(hub, P0)) == stored


def _fork_while_a_segment_is_looked_up(report: Report, directory: Path) -> None:
    """Child: fork at the instant at which another thread looks up a segment."""
    backend = EmbeddedBackend.open(directory)
    append(backend, P0, b"parent")
    inside, forked = threading.Event(), threading.Event()

    def look_up() -> None:
        with backend._opened().segments._mutex:
            inside.set()
            forked.wait()

    thread = threading.Thread(target=look_up)
    thread.start()
    inside.wait()

    def use() -> None:
        signal.alarm(10)
        append(backend, P0, b"child")
        assert values(backend, P0) == [b"parent", b"child"]

    pid = fork(use)
    forked.set()
    report(ended_well(pid))


def test_a_child_forked_while_another_thread_looks_up_a_segment_can_read(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    assert list(Child(_fork_while_a_segment_is_looked_up, tmp_path).rest()) == [True]


PROGRAM = """
import multiprocessing, sys, tailrace

hub = tailrace.open(sys.argv[1])
topic = hub.create_topic("jobs", bytes, partitions=4)
topic.push(b"0", key="k0")

def push(number):
    with topic.producer() as producer:
        producer.push(b"%d" % number, key=f"k{number}")
    return topic.push(b"%d" % number, key=f"k{number}").id

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        ids = pool.map(push, range(1, 10))
    topic.push(b"0", key="k0")
    hub.close()
    print(*ids)
"""


def test_a_pool_of_forked_processes_pushes_to_a_topic_that_was_open(tmp_path: Path) -> None:
    directory = str(tmp_path / "hub")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, directory],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with tailrace.open(directory) as hub:
        topic = hub.topic("jobs", bytes)
        found = {m.id: m.data for read in topic.reader().poll() for m in topic.messages(*read)}
    assert sorted(found.values()) == sorted(b"%d" % number for number in range(10) for _ in "ab")
    assert [found[each] for each in done.stdout.split()] == [b"%d" % n for n in range(1, 10)]


def _fork_with_a_producer(report: Report, directory: Path) -> None:
    """Child: fork while a producer has unsent messages."""
    with tailrace.open(directory) as hub:
        topic = hub.create_topic("jobs", bytes, partitions=1)
        producer = topic.producer(linger="60s")
        pending = producer.push(b"parent's")

        def use() -> None:
            with pytest.raises(HubClosed):
                producer.push(b"child's")
            with pytest.raises(HubClosed):
                pending.result(timeout=0)
            topic.push(b"child's own")

        report(ended_well(fork(use)))
        producer.close()
        report(pending.result().offset)


def test_a_producer_stays_with_the_parent_which_sends_its_messages_once(tmp_path: Path) -> None:
    child = Child(_fork_with_a_producer, tmp_path / "hub")
    assert list(child.rest()) == [True, 1]
    with tailrace.open(tmp_path / "hub") as hub:
        topic = hub.topic("jobs", bytes)
        [read] = topic.reader().poll()
        assert [m.data for m in topic.messages(*read)] == [b"child's own", b"parent's"]


def _fork_while_producing(report: Report, directory: Path, forks: int) -> None:
    """Child: fork repeatedly while a producer of another thread sends."""
    with tailrace.open(directory) as hub:
        topic = hub.create_topic("jobs", bytes, partitions=1)
        producer = topic.producer(linger="0s", batch_bytes=1)
        done = threading.Event()

        def push() -> None:
            while not done.is_set():
                producer.push(b"parent").result()

        pushing = threading.Thread(target=push)
        pushing.start()

        def use(number: int) -> None:
            signal.alarm(60)
            with pytest.raises(HubClosed):
                producer.push(b"child")
            with topic.producer() as own:
                own.push(b"%d" % number)

        for number in range(forks):
            report(ended_well(fork(partial(use, number))))
        done.set()
        pushing.join()
        producer.close()


def test_children_forked_while_a_producer_sends_have_producers_of_their_own(tmp_path: Path) -> None:
    forks = count("producing_forks", test=15, soak=300)
    child = Child(_fork_while_producing, tmp_path / "hub", forks)
    assert list(child.rest()) == [True] * forks
    assert child.exit_code == 0
    with tailrace.open(tmp_path / "hub") as hub:
        topic = hub.topic("jobs", bytes)
        data = [value for rows in topic.batches(0, 0) for value in rows["value"].to_pylist()]
    assert [each for each in data if each != b"parent"] == [b"%d" % n for n in range(forks)]


def _fork_elsewhere(report: Report, directory: Path) -> None:
    """Child: open a hub by a relative path, change the directory, and fork a child that uses it."""
    os.chdir(directory)
    with tailrace.open("hub") as hub:
        topic = hub.create_topic("jobs", bytes, partitions=1)
        os.chdir("/")
        report(ended_well(fork(lambda: topic.push(b"child"))))
        topic.push(b"parent")
        report([m.data for [read] in [topic.reader().poll()] for m in topic.messages(*read)])


def test_a_hub_opened_by_a_relative_path_stays_where_it_is(tmp_path: Path) -> None:
    child = Child(_fork_elsewhere, tmp_path)
    assert list(child.rest()) == [True, [b"child", b"parent"]]
    assert (tmp_path / "hub" / "hub.db").exists()


def _fork_inside_a_commit(report: Report, directory: Path) -> None:
    """Child: fork in the middle of a commit, as a signal handler might, and continue."""
    armed = False

    def use() -> None:
        with pytest.raises(HubClosed, match="forked during a commit"):
            backend.log.bounds(P0)
        with pytest.raises(HubClosed, match="forked during a commit"):
            append(backend, P0, b"child")

    def reach(point: str) -> None:
        nonlocal armed
        if armed and point == "commit":
            armed = False
            report(ended_well(fork(use)))

    backend = EmbeddedBackend.open(directory, reach=reach)
    armed = True
    append(backend, P0, b"parent")


def test_a_child_forked_from_inside_a_commit_is_refused_and_does_no_harm(
    hub: EmbeddedBackend, tmp_path: Path
) -> None:
    child = Child(_fork_inside_a_commit, tmp_path)
    assert list(child.rest()) == [True]
    assert child.exit_code == 0
    append(hub, P0, b"after")
    assert values(hub, P0) == [b"parent", b"after"]
