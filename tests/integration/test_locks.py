"""Locks between processes. Each `Locks` has open files of its own, so two of them are as good as
two processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tailrace.backend.embedded.locks import Locks
from tailrace.errors import BackendUnavailable
from tests.support.processes import Child, Report, await_death, kill_now
from tests.support.waiting import in_thread, until

pytestmark = pytest.mark.part("fences")

L = TypeVar("L", bound=Locks)

SLOT = 7
LONG_S = 20.0
SHORT_S = 0.05


class _Hub:
    """The lock files of a hub, and all that have opened them."""

    def __init__(self, directory: Path) -> None:
        self.files = directory / "partitions", directory / "commit"
        self._opened: list[Locks] = []

    def open(self) -> Locks:
        return self.add(Locks(*self.files))

    def add(self, locks: L) -> L:
        self._opened.append(locks)
        return locks

    def close(self) -> None:
        for locks in self._opened:
            locks.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[_Hub]:
    opened = _Hub(tmp_path)
    yield opened
    opened.close()


@contextmanager
def _held(locks: Locks, wait_s: float = LONG_S) -> Iterator[None]:
    locks.lock_partition(SLOT, time.monotonic() + wait_s, "partition 7")
    try:
        yield
    finally:
        locks.unlock_partition(SLOT)


def _is_free(locks: Locks) -> bool:
    try:
        with _held(locks, 0.0):
            return True
    except BackendUnavailable:
        return False


def _give_up(locks: Locks) -> None:
    with pytest.raises(BackendUnavailable), _held(locks, SHORT_S):
        pass


def _await_no_wait(locks: Locks) -> None:
    """Wait until a lock that timed out has been granted."""
    until(lambda: not locks._waits, "still waiting for a lock")


def test_waiting_for_a_held_lock_fails_with_the_name_of_its_holder(hub: _Hub) -> None:
    with (
        _held(hub.open()),
        pytest.raises(BackendUnavailable, match=rf"partition 7 .* process {os.getpid()} holds it"),
        _held(hub.open(), SHORT_S),
    ):
        pass


def test_the_commit_lock_excludes_and_names_its_holder(hub: _Hub) -> None:
    holder, other = hub.open(), hub.open()
    holder.lock_commit(time.monotonic())
    with pytest.raises(BackendUnavailable, match=rf"commit lock .* process {os.getpid()} holds"):
        other.lock_commit(time.monotonic() + SHORT_S)
    holder.unlock_commit()
    other.lock_commit(time.monotonic() + LONG_S)
    other.unlock_commit()


def test_partitions_are_locked_one_by_one(hub: _Hub) -> None:
    with _held(hub.open()):
        other = hub.open()
        for neighbour in (SLOT - 1, SLOT + 1):
            other.lock_partition(neighbour, time.monotonic(), "a neighbour")


def test_a_lock_granted_after_its_timeout_is_released(hub: _Hub) -> None:
    holder, impatient, third = hub.open(), hub.open(), hub.open()
    with _held(holder):
        _give_up(impatient)
    _await_no_wait(impatient)
    with _held(third):
        pass


def test_a_lock_granted_after_its_timeout_is_adopted_by_the_next_request(hub: _Hub) -> None:
    holder, impatient, third = hub.open(), hub.open(), hub.open()
    with _held(holder):
        _give_up(impatient)
        _give_up(impatient)
        threading.Timer(SHORT_S, holder.unlock_partition, (SLOT,)).start()
        with _held(impatient):
            assert not _is_free(third)
    with _held(third):
        assert not _is_free(holder)


class _SlowToLetGo(Locks):
    """Leaves who asks all the time to come between a lock's coming and its being let go of."""

    def __init__(self, partitions: Path, commit: Path) -> None:
        super().__init__(partitions, commit)
        self.letting_go = threading.Event()
        self.let_go = threading.Event()

    def _release(self, slot: int) -> None:
        late = threading.current_thread().name == "tailrace-lock"
        if late:
            self.letting_go.set()
            time.sleep(4 * SHORT_S)
        super()._release(slot)
        if late:
            self.let_go.set()


def test_requesting_a_lock_again_at_the_instant_it_is_granted_never_makes_two_holders(
    hub: _Hub,
) -> None:
    holder, third = hub.open(), hub.open()
    impatient = hub.add(_SlowToLetGo(*hub.files))
    with _held(holder):
        _give_up(impatient)
    assert impatient.letting_go.wait(LONG_S)
    with _held(impatient):
        assert impatient.let_go.wait(LONG_S)
        assert not _is_free(third)


def test_a_thread_that_is_interrupted_while_it_waits_keeps_no_lock(hub: _Hub) -> None:
    holder, interrupted, third = hub.open(), hub.open(), hub.open()
    main = threading.main_thread().ident
    assert main is not None
    with _held(holder):

        def interrupt() -> None:
            until(lambda: interrupted._waits, "it does not wait")
            time.sleep(SHORT_S)
            signal.pthread_kill(main, signal.SIGINT)

        in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt), _held(interrupted):
            pass
    _await_no_wait(interrupted)
    with _held(third):
        pass


def test_a_lock_granted_after_closing_releases_no_lock_of_another(
    tmp_path: Path,
) -> None:
    files = tmp_path / "partitions", tmp_path / "commit"
    holder, third = Locks(*files), Locks(*files)
    closed = Locks(*files)
    with _held(holder):
        _give_up(closed)
        closed.close()
        reopened = Locks(*files)  # with the numbers of the files that were closed
        waiting = threading.Timer(SHORT_S, holder.unlock_partition, (SLOT,))
        waiting.start()
        with _held(reopened):
            waiting.join()
            for thread in threading.enumerate():
                if thread.name == "tailrace-lock":
                    thread.join(SHORT_S)
            assert not _is_free(third)
    for locks in (holder, third, reopened):
        locks.close()


def test_a_thread_that_waited_as_its_locks_were_closed_ends(tmp_path: Path) -> None:
    files = tmp_path / "partitions", tmp_path / "commit"
    threads = set(threading.enumerate())
    holder, closed = Locks(*files), Locks(*files)
    with _held(holder):
        _give_up(closed)
        closed.close()
    for thread in set(threading.enumerate()) - threads:
        thread.join(LONG_S)
    assert set(threading.enumerate()) <= threads
    holder.close()


def _hold_for_ever(report: Report, files: tuple[Path, Path]) -> None:
    locks = Locks(*files)
    locks.lock_partition(SLOT, time.monotonic(), "partition 7")
    locks.lock_commit(time.monotonic())
    report("held")
    signal.pause()


def test_successive_waits_need_one_thread_which_ends_with_its_locks(
    tmp_path: Path,
) -> None:
    files = tmp_path / "partitions", tmp_path / "commit"
    threads = set(threading.enumerate())
    holder, waiter = Locks(*files), Locks(*files)
    for _ in range(3):
        with _held(holder):
            _give_up(waiter)
        until(lambda: waiter._idle and not waiter._waits)
    (thread,) = set(threading.enumerate()) - threads
    waiter.close()
    thread.join(LONG_S)
    assert not thread.is_alive()
    holder.close()


def test_the_locks_of_a_killed_process_are_free_at_once(tmp_path: Path) -> None:
    files = tmp_path / "partitions", tmp_path / "commit"
    child = Child(_hold_for_ever, files)
    assert child.next_report() == "held"
    locks = Locks(*files)
    with pytest.raises(BackendUnavailable, match=f"process {child.pid} holds it"):
        locks.lock_partition(SLOT, time.monotonic() + SHORT_S, "partition 7")
    kill_now(child.pid)
    await_death(child.pid)
    with _held(locks, 5.0):
        locks.lock_commit(time.monotonic())
    locks.close()
