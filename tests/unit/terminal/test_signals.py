"""The main thread waits and handles signals meanwhile."""

from __future__ import annotations

import signal
import threading

from tailrace.terminal.signals import Signals, wait_for
from tests.support.waiting import in_thread


def test_a_signal_that_another_thread_gets_ends_a_wait_of_the_main_thread() -> None:
    condition = threading.Condition()
    with Signals() as signals, condition:
        in_thread(lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
        assert wait_for(condition, lambda: signals.count > 0, 60)


def test_a_wait_ends_when_another_thread_notifies() -> None:
    condition, done = threading.Condition(), threading.Event()

    def finish() -> None:
        with condition:
            done.set()
            condition.notify_all()

    with condition:
        in_thread(finish)
        assert wait_for(condition, done.is_set)


def test_a_wait_ends_with_its_timeout_in_any_thread() -> None:
    results: list[bool] = []

    def wait() -> None:
        condition = threading.Condition()
        with condition:
            results.append(wait_for(condition, lambda: False, 0.01))

    wait()
    in_thread(wait).join(60)
    assert results == [False, False]


def test_a_repeated_termination_counts_once_and_another_signal_counts() -> None:
    with Signals() as signals:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert signals.count == 2
