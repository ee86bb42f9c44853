"""Threads that sync several files at once.

Each sync of a file that has grown waits for a commit of the file system's journal. Syncs that wait
at the same time share one; one after the other, twelve files take ten times as long.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

THREADS_MAX: Final = 8
"""The number of files that are synced at the same time."""


class _Sync:
    """A sync, for a thread or for the caller.

    An executor that cannot start a thread has queued its work already, and executes it whenever a
    thread starts later. By then the caller has executed it, and its file may be gone.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._here = False

    def run_here(self) -> None:
        """Execute the sync, and have no thread begin it later."""
        self._here = True
        self._sync()

    def run_in_thread(self) -> None:
        """Execute the sync, unless the caller has taken it."""
        if not self._here:
            self._sync()


class SyncThreads:
    """The threads of one hub in this process, which start with the first need for them."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process = 0

    def run(self, syncs: Iterable[Callable[[], None]]) -> None:
        """Execute all syncs, and return when each has ended. Raises the first error of any."""
        waiting = list(map(_Sync, syncs))
        started = self._start(waiting[1:])
        try:
            for sync in waiting[: len(waiting) - len(started)]:
                sync.run_here()
        finally:
            wait(started)
        for each in started:
            each.result()

    def _start(self, syncs: list[_Sync]) -> list[Future[None]]:
        """Start syncs in threads, the last one first, and return the started ones.

        No thread starts while the interpreter ends, or if the limit of threads is reached.
        """
        started: list[Future[None]] = []
        with suppress(RuntimeError):
            for sync in reversed(syncs):
                started.append(self._opened().submit(sync.run_in_thread))
        return started

    def _opened(self) -> ThreadPoolExecutor:
        """Return the threads. A forked process has none of its parent's."""
        if self._executor is None or self._process != os.getpid():
            self._process = os.getpid()
            self._executor = ThreadPoolExecutor(THREADS_MAX, "tailrace-sync")
        return self._executor

    def close(self) -> None:
        """End the threads."""
        if self._executor is not None and self._process == os.getpid():
            self._executor.shutdown()
        self._executor = None
