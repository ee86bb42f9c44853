"""Waking followers: a committer touches one file, and the kernel wakes all processes that wait.

The file is touched after COMMIT has returned, so the commit is visible to a follower that wakes.
(Watching the database's own files would wake too early: they are written before a commit is
visible.) A committer that is killed between the two wakes followers too: the kernel then closes its
files, which followers also watch for. Followers also watch the hub's directory, so that they wake
when the hub is removed, moved or replaced.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
from pathlib import Path

from tailrace.backend.forking import reopen, reset_after_fork
from tailrace.log.sharing import open_or_create

_IN_ATTRIB = 0x4
_IN_CLOSE_WRITE = 0x8
_IN_REPLACED = 0x40 | 0x80 | 0x200 | 0x400 | 0x800
"""A name of the directory is moved away, moved in or removed; the directory itself is removed or
moved."""
_libc = ctypes.CDLL(None, use_errno=True)


class WakeFile:
    """The wake file, as committers use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = open_or_create(path)

    def after_fork(self) -> None:
        """In a forked child: open the file again, so that followers notice the parent's death."""
        os.close(self._descriptor)
        self._descriptor = reopen(self._path)

    def touch(self) -> None:
        """Wake every follower of every process."""
        os.utime(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
        self._descriptor = -1  # By the time of a late touch, the descriptor may be another file's.


class WakeFollower:
    """The wake file, as one follower watches it; see `tailrace.backend.contract.Follower`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._open()
        reset_after_fork(self)

    def _open(self) -> None:
        self._inherited = False
        self._woken = -1
        self._descriptor = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(
                ctypes.get_errno(), "cannot create an inotify instance (see the fs.inotify limits)"
            )
        if self._path.exists():  # A backup that is only read may lack the file.
            self._watch(self._path, _IN_ATTRIB | _IN_CLOSE_WRITE)
        if os.access(self._path.parent, os.R_OK):  # A user who only reads may lack this right.
            self._watch(self._path.parent, _IN_REPLACED)
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def _watch(self, path: Path, events: int) -> None:
        if _libc.inotify_add_watch(self._descriptor, os.fsencode(path), events) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, os.strerror(number), str(path))

    def after_fork(self) -> None:
        """In a forked child: drop the watch; events read here would be lost to the parent."""
        self._mutex = threading.Lock()
        self._inherited = self._descriptor >= 0
        self.close()

    def arm(self) -> None:
        """Discard the touches so far."""
        if self._inherited:
            self._open()
        try:
            while os.read(self._descriptor, 4096):
                pass
        except BlockingIOError:
            return

    def wait(self, timeout_s: float) -> bool:
        """Return True after a touch since `arm`, or a `wake`."""
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
        """Close the watch."""
        with self._mutex:
            for descriptor in {self._descriptor, self._woken} - {-1}:
                os.close(descriptor)
            self._descriptor = self._woken = -1
