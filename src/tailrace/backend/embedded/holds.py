"""Holds: names that one holder at a time has, as locks of files in `hub.holds`.

A hold is two locks of the kernel (open-file-description locks) on the file of its name. The first,
the *claim*, is the hold itself and ends with the process. The second shows that the file has the
text of the present owner: it is taken once that is written. A query only tests the locks and takes
none, so that a query never makes a `hold` fail.

A beat advances the file's modification time by a second; it is a counter, not a time. No byte is
written, so a beat works on a full disk, and it costs as little as a commit's touch of a file. The
kernel records when it happened as the time of the file's last change.

The holder removes the file before it releases the locks. A process that has claimed a removed file
starts again. Files of killed holders stay until the name is next held and released.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tailrace.backend.contract import Hold
from tailrace.backend.embedded.layout import disk_full, is_full
from tailrace.backend.forking import NO_FORK, reset_after_fork
from tailrace.errors import Busy, InvalidValue
from tailrace.log.sharing import make_directory, open_or_create

NAME_BYTES_MAX: Final = 200
OWNER_BYTES_MAX: Final = 1000

_FLOCK = struct.Struct("hhqqi")
_CLAIM: Final = 0
_SIGNED: Final = 1
_READS_MAX: Final = 200
_POLL_S: Final = 0.001
_UNSIGNED: Final = "an unknown process"


class _Claim:
    """The open file of a name that this process holds."""

    __slots__ = ("beats", "descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.beats = 0


class Holds:
    """The holds of one open hub."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mutex = threading.Lock()
        self._held: set[_Claim] = set()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child, which holds nothing: close the parent's files without unlocking
        them."""
        self._mutex = threading.Lock()
        held, self._held = self._held, set()
        for claim in held:
            os.close(claim.descriptor)

    def acquire(self, name: str, owner: str) -> Hold:
        """Hold a name; see `tailrace.backend.contract.Backend.hold`."""
        path, text = self._path(name), owner.encode()
        if not 0 < len(text) <= OWNER_BYTES_MAX:
            raise InvalidValue("the owner of a hold", owner, f"1 to {OWNER_BYTES_MAX} bytes")
        holder = None
        for _ in range(_READS_MAX):
            claim = self._claim(path, text)
            if claim is not None:
                return Hold(name, owner, partial(self._release, claim), partial(self._beat, claim))
            holder = self.holder(name)
            if holder is not None:
                break
        raise Busy(
            f"{name} is held by {holder or _UNSIGNED}",
            "wait until it is released, or stop that process",
        )

    def holder(self, name: str) -> str | None:
        """Return the owner text of the name's holder, or None."""
        path = self._path(name)
        for _ in range(_READS_MAX):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                if not _locked(descriptor, _CLAIM):
                    return None
                text = os.pread(descriptor, OWNER_BYTES_MAX, 0)
                if (
                    _locked(descriptor, _SIGNED)
                    and os.pread(descriptor, OWNER_BYTES_MAX, 0) == text
                ):
                    return text.decode()
            finally:
                os.close(descriptor)
            time.sleep(_POLL_S)
        return _UNSIGNED

    def beats(self, name: str) -> int | None:
        """Return a number that each beat changes, or None if the name is not held."""
        found = self._held_file(name)
        return None if found is None else found.st_mtime_ns

    def silent_s(self, name: str) -> float | None:
        """Return the seconds since the holder last beat, or None if the name is not held."""
        found = self._held_file(name)
        return None if found is None else max(0.0, time.time() - found.st_ctime)

    def _held_file(self, name: str) -> os.stat_result | None:
        """Return the status of the file of a name; None if the name is not held."""
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(descriptor) if _locked(descriptor, _CLAIM) else None
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release all names."""
        for claim in list(self._held):
            self._release(claim)

    def _claim(self, path: Path, text: bytes) -> _Claim | None:
        try:
            make_directory(self._directory)
            # A child forked in here would share the lock without knowing it.
            with NO_FORK:
                claim = _claim(path, text)
                if claim is not None:
                    with self._mutex:
                        self._held.add(claim)
        except OSError as error:
            if is_full(error):
                raise disk_full(self._directory.parent, error) from error
            raise
        return claim

    def _release(self, claim: _Claim) -> None:
        with NO_FORK:
            with self._mutex:
                if claim not in self._held:
                    return
                self._held.remove(claim)
            _release_file(claim)

    def _beat(self, claim: _Claim) -> bool:
        with self._mutex:
            if claim not in self._held:
                return False
            claim.beats += 1
            os.utime(claim.descriptor, (claim.beats, claim.beats))
            return True

    def _path(self, name: str) -> Path:
        escaped = quote(name, safe="")
        if not 0 < len(escaped) <= NAME_BYTES_MAX:
            raise InvalidValue(
                "the name of a hold", name, f"1 to {NAME_BYTES_MAX} bytes, escaped as in a URL"
            )
        return self._directory / f"{escaped}.hold"


def _claim(path: Path, text: bytes) -> _Claim | None:
    """Claim the file and write the owner; None if another process has claimed it."""
    while True:
        claim = _Claim(path, open_or_create(path))
        try:
            free = _lock(claim.descriptor, _CLAIM)
            status = os.fstat(claim.descriptor)
            exists = status.st_nlink > 0
            if free and exists and os.geteuid() not in (status.st_uid, 0):
                # Left by another user: only the owner of a file may set its time, as a beat does.
                path.unlink()
                exists = False
            if free and exists:
                os.pwrite(claim.descriptor, text, 0)
                os.ftruncate(claim.descriptor, len(text))
                _lock(claim.descriptor, _SIGNED)
                return claim
        except OSError:
            os.close(claim.descriptor)
            raise
        os.close(claim.descriptor)
        if exists:
            return None


def _release_file(claim: _Claim) -> None:
    with suppress(OSError):
        # In a hub that was replaced, the name may be another process's.
        if os.path.samestat(claim.path.stat(), os.fstat(claim.descriptor)):
            claim.path.unlink()
    # A process that another thread has just forked to run a program may still share the file.
    fcntl.fcntl(claim.descriptor, fcntl.F_OFD_SETLK, _both(fcntl.F_UNLCK))
    os.close(claim.descriptor)


def _lock(descriptor: int, byte: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _one(fcntl.F_WRLCK, byte))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _locked(descriptor: int, byte: int) -> bool:
    """True if another open file holds the lock."""
    found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _one(fcntl.F_WRLCK, byte))
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _one(kind: int, byte: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)


def _both(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, _CLAIM, _SIGNED + 1, 0)
