"""Waiting for commits without missing one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from tailrace.backend.contract import Backend, Change, TableKey, Transaction
from tests.support.records import P0, append, create, records, values

LONG_S = 30.0
SHORT_S = 0.01
ROUNDS = 100


def test_a_commit_after_arming_ends_the_wait(backend: Backend) -> None:
    create(backend)
    commits: tuple[Callable[[], object], ...] = (
        lambda: backend.commit(Transaction(((P0, records(b"a")),))),
        lambda: backend.commit(Transaction(table={TableKey("t", b"k"): b"v"})),
        lambda: backend.store.commit(Change(writes={"k": b"v"})),
    )
    with closing(backend.follower()) as follower:
        for commit in commits:
            follower.arm()
            commit()
            assert follower.wait(LONG_S)


def test_a_wait_without_a_commit_ends_with_its_time(backend: Backend) -> None:
    with closing(backend.follower()) as follower:
        create(backend)
        timed_out = False
        for _ in range(20):
            follower.arm()
            timed_out |= not follower.wait(SHORT_S)
        assert timed_out


def test_every_follower_is_woken(backend: Backend) -> None:
    create(backend)
    with closing(backend.follower()) as one, closing(backend.follower()) as other:
        one.arm()
        other.arm()
        append(backend, P0, b"a")
        assert one.wait(LONG_S)
        assert other.wait(LONG_S)


def test_arming_checking_and_waiting_never_misses_a_commit(backend: Backend) -> None:
    """Each commit waits until the one before was seen, so a missed one blocks both sides."""
    create(backend)
    seen = threading.Semaphore(1)
    done = threading.Event()

    def produce() -> None:
        for i in range(ROUNDS):
            if not seen.acquire(timeout=LONG_S) or done.is_set():
                return
            append(backend, P0, b"%d" % i)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        with closing(backend.follower()) as follower:
            count = 0
            while count < ROUNDS:
                follower.arm()
                there = len(values(backend, P0))
                for _ in range(there - count):
                    seen.release()
                if there == count:
                    assert follower.wait(LONG_S), f"commit {count} was missed"
                count = there
    finally:
        done.set()
        seen.release()
        producer.join()


def test_a_waiting_follower_is_woken_by_another_thread(backend: Backend) -> None:
    create(backend)
    with closing(backend.follower()) as follower:
        follower.arm()
        committer = threading.Timer(SHORT_S, append, (backend, P0, b"a"))
        committer.start()
        assert follower.wait(LONG_S)
        committer.join()


def test_a_waiting_follower_may_be_woken_without_a_commit(backend: Backend) -> None:
    with closing(backend.follower()) as follower:
        follower.arm()
        waker = threading.Timer(SHORT_S, follower.wake)
        waker.start()
        assert follower.wait(LONG_S)
        waker.join()


def test_a_wake_that_comes_before_the_wait_ends_that_one_and_no_other(backend: Backend) -> None:
    with closing(backend.follower()) as follower, closing(backend.follower()) as other:
        other.arm()
        follower.arm()
        follower.wake()
        follower.wake()
        assert follower.wait(LONG_S)
        assert not follower.wait(SHORT_S)
        assert not other.wait(SHORT_S)


def test_waking_a_closed_follower_does_nothing(backend: Backend) -> None:
    follower = backend.follower()
    follower.close()
    follower.wake()
