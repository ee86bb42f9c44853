"""Locks between the processes of one hub: one per partition, and the commit lock.

Partition locks are byte ranges of one file (open-file-description locks: thousands of them cost
one descriptor); the commit lock is a `flock` on a file of its own. Both end with the process
that holds them. The kernel has no timeout for either. So a thread waits for a lock, and the caller
waits for the thread: waiting is fair, and still ends in time. A holder writes its pid beside its
lock, so that the error of a timeout can name it.

A forked child shares its parent's open files, and would keep a dead parent's locks held. So it
closes them, never unlocks them, and opens its own.

One thread of a process requests locks at a time, which `Committer` ensures.
"""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import struct
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tailrace.backend.forking import reopen, reset_after_fork
from tailrace.errors import BackendUnavailable
from tailrace.log.sharing import open_or_create

_SLOT_BYTES = 8
_FLOCK = struct.Struct("hhqqi")


class _Wait:
    """One blocking request for a lock, which continues after its caller timed out."""

    def __init__(self) -> None:
        self.granted = threading.Event()
        self.abandoned = False
        self.error: OSError | None = None


class Locks:
    """The locks of one process on one hub."""

    def __init__(self, partitions: Path, commit: Path) -> None:
        self._paths = (partitions, commit)
        self._closed = False
        self._open(open_or_create)
        reset_after_fork(self)

    def _open(self, open_file: Callable[[Path], int]) -> None:
        self._mutex = threading.Lock()
        self._waits: dict[int, _Wait] = {}
        self._idle: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._partitions, self._commit = (open_file(path) for path in self._paths)
        self._pid = os.getpid().to_bytes(_SLOT_BYTES, "big")

    def after_fork(self) -> None:
        """In a forked child: close the parent's lock files without unlocking them."""
        if not self._closed:
            os.close(self._partitions)
            os.close(self._commit)
            self._open(reopen)

    def close(self) -> None:
        """Close the files, which releases all locks of this process. Not while a thread requests a
        lock."""
        with self._mutex:
            self._closed = True
            self._waits.clear()
            for calls in self._idle:
                calls.put(None)
            os.close(self._partitions)
            os.close(self._commit)
            self._partitions = self._commit = -1  # The descriptors may soon be other files'.

    def lock_partition(self, slot: int, deadline: float, what: str) -> None:
        """Acquire the lock of the partition with this number; `BackendUnavailable` names its holder
        after a timeout."""
        self._acquire(slot, deadline, what)
        self._sign(slot)

    def unlock_partition(self, slot: int) -> None:
        """Release the lock of the partition."""
        self._release(slot)

    def lock_commit(self, deadline: float) -> bool:
        """Acquire the commit lock; `BackendUnavailable` names its holder after a timeout.

        Returns True if the lock was not free at once.
        """
        waited = self._acquire(_COMMIT, deadline, "the commit lock")
        self._sign(_COMMIT)
        return waited

    @property
    def are_removed(self) -> bool:
        """True if the file of the commit lock was removed or replaced."""
        return os.fstat(self._commit).st_nlink == 0

    def unlock_commit(self) -> None:
        """Release the commit lock."""
        self._release(_COMMIT)

    def _acquire(self, slot: int, deadline: float, what: str) -> bool:
        """Acquire a lock. Returns False if it was free at once."""
        if slot not in self._waits and self._try(slot, blocking=False):
            return False
        with self._mutex:
            wait = self._waits.get(slot)
            if wait is None:
                wait = self._waits[slot] = _Wait()
                self._in_thread(lambda: self._block(slot, wait))
            wait.abandoned = False
        try:
            wait.granted.wait(deadline - time.monotonic())
        except BaseException:
            if self._end_wait(slot, wait):
                self._release(slot)
            raise
        if not self._end_wait(slot, wait):
            raise BackendUnavailable(
                f"{what} was not free in time",
                f"process {self._holder(slot)} holds it",
                "check if that process is stopped; nothing was written",
            )
        if wait.error is not None:
            raise wait.error
        return True

    def _end_wait(self, slot: int, wait: _Wait) -> bool:
        """Return True if the lock was acquired.

        Otherwise the waiting thread releases the lock when it gets it, unless a new request for
        the same lock waits by then.
        """
        with self._mutex:
            wait.abandoned = not wait.granted.is_set()
            if not wait.abandoned:
                del self._waits[slot]
            return not wait.abandoned

    def _try(self, slot: int, *, blocking: bool) -> bool:
        try:
            if slot == _COMMIT:
                fcntl.flock(self._commit, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            else:
                command = fcntl.F_OFD_SETLKW if blocking else fcntl.F_OFD_SETLK
                fcntl.fcntl(self._partitions, command, _range(fcntl.F_WRLCK, slot))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES) and not blocking:
                return False
            raise
        return True

    def _sign(self, slot: int) -> None:
        """Write the holder's pid; release a lock that cannot be signed because the disk is full."""
        try:
            if slot == _COMMIT:
                os.pwrite(self._commit, self._pid, 0)
            else:
                os.pwrite(self._partitions, self._pid, slot * _SLOT_BYTES)
        except OSError:
            self._release(slot)
            raise

    def _release(self, slot: int) -> None:
        if slot == _COMMIT:
            fcntl.flock(self._commit, fcntl.LOCK_UN)
        else:
            fcntl.fcntl(self._partitions, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, slot))

    def _block(self, slot: int, wait: _Wait) -> None:
        try:
            self._try(slot, blocking=True)
        except OSError as error:
            wait.error = error
        with self._mutex:
            if self._waits.get(slot) is not wait:
                return  # Closed meanwhile: these descriptors may be other files' by now.
            if not wait.abandoned:
                wait.granted.set()
                return
            if wait.error is None:
                self._release(slot)
            # Last: a thread that finds no waiting request here takes the lock for its own.
            del self._waits[slot]

    def _in_thread(self, call: Callable[[], None]) -> None:
        if self._idle:
            self._idle.pop().put(call)
            return
        calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        calls.put(call)

        def serve() -> None:
            while (next_call := calls.get()) is not None:
                next_call()
                with self._mutex:
                    if self._closed:
                        return
                    self._idle.append(calls)

        threading.Thread(target=serve, name="tailrace-lock", daemon=True).start()

    def _holder(self, slot: int) -> int:
        if slot == _COMMIT:
            return int.from_bytes(os.pread(self._commit, _SLOT_BYTES, 0), "big")
        return int.from_bytes(os.pread(self._partitions, _SLOT_BYTES, slot * _SLOT_BYTES), "big")


_COMMIT = -1
"""The slot of the commit lock, in the place of a partition's number."""


@lru_cache(maxsize=4096)
def _range(kind: int, slot: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, slot * _SLOT_BYTES, _SLOT_BYTES, 0)
