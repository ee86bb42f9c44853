"""Waking followers: a committer touches one file, and whoever waits is told by the kernel.

The file is touched after COMMIT has returned, so what was committed is visible to whoever
wakes. (Watching the database's own files would wake too early: they are written before a commit
is visible.) A committer that is killed between the two wakes them all the same: the kernel then
closes its files, which followers watch for as well.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
from pathlib import Path

from tailrace.backend.embedded.forking import begin_anew_after_fork

_IN_ATTRIB = 0x4
_IN_CLOSE_WRITE = 0x8
_libc = ctypes.CDLL(None, use_errno=True)


class WakeFile:
    """The file, as committers hold it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def after_fork(self) -> None:
        """In a forked child: share no file with the parent, whose death is to be noticed."""
        os.close(self._descriptor)
        self._descriptor = self._open()

    def touch(self) -> None:
        """Wake every follower of every process."""
        os.utime(self._descriptor)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)
        self._descriptor = -1  # the number may be another file's by the time of a late touch


class WakeFollower:
    """The file, as one follower watches it (see `tailrace.backend.contract.Follower`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._open()
        begin_anew_after_fork(self)

    def _open(self) -> None:
        self._inherited = False
        self._woken = -1
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(
                ctypes.get_errno(), "no inotify instance could be had (fs.inotify limits)"
            )
        events = _IN_ATTRIB | _IN_CLOSE_WRITE
        if _libc.inotify_add_watch(self._descriptor, os.fsencode(self._path), events) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, os.strerror(number), str(self._path))
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def after_fork(self) -> None:
        """In a forked child: let go of it, for what is read here the parent would never see."""
        self._mutex = threading.Lock()
        self._inherited = self._descriptor >= 0
        self.close()

    def arm(self) -> None:
        """Forget the touches so far."""
        if self._inherited:
            self._open()
        try:
            while os.read(self._descriptor, 4096):
                pass
        except BlockingIOError:
            return

    def wait(self, timeout_s: float) -> bool:
        """True after a touch since `arm`, or a `wake`."""
        ready = self._poll.poll(max(0.0, timeout_s) * 1000)
        if any(descriptor == self._woken for descriptor, _ in ready):
            os.eventfd_read(self._woken)
        return bool(ready)

    def wake(self) -> None:
        """End a wait of any thread."""
        with self._mutex:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Close it."""
        with self._mutex:
            for descriptor in {self._descriptor, self._woken} - {-1}:
                os.close(descriptor)
            self._descriptor = self._woken = -1
