"""Syncs of several files at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tailrace.backend.embedded.sync_threads import THREADS_MAX, SyncThreads

ANSWER_S = 30.0


@pytest.fixture
def threads() -> Iterator[SyncThreads]:
    opened = SyncThreads()
    yield opened
    opened.close()


def _names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_syncs_wait_at_the_same_time(threads: SyncThreads) -> None:
    meeting = threading.Barrier(THREADS_MAX, timeout=ANSWER_S)

    def sync() -> None:
        meeting.wait()

    threads.run([sync] * THREADS_MAX)
    assert not meeting.broken


def test_each_of_many_syncs_has_ended_when_the_call_returns(threads: SyncThreads) -> None:
    ended: list[int] = []
    threads.run(partial(ended.append, number) for number in range(100))
    assert sorted(ended) == list(range(100))


@pytest.mark.parametrize("failing", [0, 1, 9])
def test_an_error_is_raised_once_all_others_have_ended(threads: SyncThreads, failing: int) -> None:
    ended: list[int] = []

    def sync(number: int) -> None:
        if number == failing:
            raise OSError(5, "Input/output error")
        ended.append(number)

    with pytest.raises(OSError, match="Input/output error"):
        threads.run(partial(sync, number) for number in range(10))
    expected = [number for number in range(10) if number != failing]
    assert sorted(ended) == expected


def test_one_sync_needs_no_thread_and_closing_ends_all_threads(threads: SyncThreads) -> None:
    before = _names()
    threads.run([lambda: None])
    assert _names() == before
    threads.run([lambda: None] * 3)
    assert _names() > before
    threads.close()
    assert _names() == before


def test_a_forked_process_starts_threads_of_its_own(threads: SyncThreads) -> None:
    threads.run([lambda: None] * 3)
    child = os.fork()
    if child == 0:
        ended: list[int] = []
        threads.run([lambda: ended.append(1)] * 3)
        os._exit(len(ended))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3


def test_a_sync_whose_thread_could_not_start_is_not_executed_again_later(
    threads: SyncThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.run(partial(ended.append, number) for number in range(3))
    assert sorted(ended) == [0, 1, 2]
    threads.run(partial(ended.append, number) for number in range(3, 6))
    threads.close()
    assert sorted(ended) == [0, 1, 2, 3, 4, 5]


def test_an_interpreter_that_ends_still_syncs_everything() -> None:
    program = (
        "import atexit\n"
        "from tailrace.backend.embedded.sync_threads import SyncThreads\n"
        "threads = SyncThreads()\n"
        "atexit.register(lambda: threads.run([lambda: print('synced')] * 3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "synced\n" * 3
    assert done.stderr == ""
