"""Names that one holder at a time has: locks of files in `hub.holds`.

A hold is two locks of the kernel (open-file-description locks) on the file of its name. The first,
the *claim*, is the hold itself and dies with the process. The second says that the file has the
text of the present owner: it is taken once that is written. Whoever asks only looks at locks and
takes none, so that nobody is ever refused because of a question.

A beat moves the file's time of modification on by a second, and nobody reads it as a time: no byte
is written, so that a full disk silences no one, and it is as cheap as a commit's touch of a file.
When that was, the kernel notes as the time of the file's last change.

The holder removes the file before it lets go. Whoever has claimed a file that is no longer there
begins again. Files of killed holders stay until the name is next held and released.
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
from tailrace.backend.embedded.forking import NO_FORK, begin_anew_after_fork
from tailrace.backend.embedded.layout import disk_full, is_full
from tailrace.errors import Busy, InvalidValue

NAME_BYTES_MAX: Final = 200
OWNER_BYTES_MAX: Final = 1000

_FLOCK = struct.Struct("hhqqi")
_CLAIM: Final = 0
_SIGNED: Final = 1
_LOOKS_MAX: Final = 200
_LOOK_AGAIN_S: Final = 0.001
_UNSIGNED: Final = "a process that has not said who it is"


class _Claim:
    """The open file of a name that this process holds."""

    __slots__ = ("beats", "descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.beats = 0


class Holds:
    """The holds of one opened hub."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mutex = threading.Lock()
        self._held: set[_Claim] = set()
        begin_anew_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child, which holds nothing: close the parent's files and unlock none."""
        self._mutex = threading.Lock()
        held, self._held = self._held, set()
        for claim in held:
            os.close(claim.descriptor)

    def take(self, name: str, owner: str) -> Hold:
        """Hold a name; see `tailrace.backend.contract.Backend.hold`."""
        path, text = self._path(name), owner.encode()
        if not 0 < len(text) <= OWNER_BYTES_MAX:
            raise InvalidValue("the owner of a hold", owner, f"1 to {OWNER_BYTES_MAX} bytes")
        holder = None
        for _ in range(_LOOKS_MAX):
            claim = self._claim(path, text)
            if claim is not None:
                return Hold(name, owner, partial(self._release, claim), partial(self._beat, claim))
            holder = self.holder(name)
            if holder is not None:
                break
        raise Busy(f"{name} is held by {holder or _UNSIGNED}", "wait until that is done, or end it")

    def holder(self, name: str) -> str | None:
        """The owner's text of whoever holds the name now, or None."""
        path = self._path(name)
        for _ in range(_LOOKS_MAX):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
            time.sleep(_LOOK_AGAIN_S)
        return _UNSIGNED

    def beats(self, name: str) -> int | None:
        """A number that each beat changes, or None when nobody holds the name."""
        found = self._look(name)
        return None if found is None else found.st_mtime_ns

    def silent_s(self, name: str) -> float | None:
        """How long ago the holder last beat, or None when nobody holds the name."""
        found = self._look(name)
        return None if found is None else max(0.0, time.time() - found.st_ctime)

    def _look(self, name: str) -> os.stat_result | None:
        """The file of a name that is held."""
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(descriptor) if _locked(descriptor, _CLAIM) else None
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of all."""
        for claim in list(self._held):
            self._release(claim)

    def _claim(self, path: Path, text: bytes) -> _Claim | None:
        try:
            self._directory.mkdir(exist_ok=True)
            # A child forked in here would share the lock, and not know of it.
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
            _let_go(claim)

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
    """Claim the file and sign it; None when another has it."""
    while True:
        claim = _Claim(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        try:
            free = _lock(claim.descriptor, _CLAIM)
            there = os.fstat(claim.descriptor).st_nlink > 0
            if free and there:
                os.pwrite(claim.descriptor, text, 0)
                os.ftruncate(claim.descriptor, len(text))
                _lock(claim.descriptor, _SIGNED)
                return claim
        except OSError:
            os.close(claim.descriptor)
            raise
        os.close(claim.descriptor)
        if there:
            return None


def _let_go(claim: _Claim) -> None:
    with suppress(OSError):
        claim.path.unlink()
    # A process that another thread has just forked, to run a program, may still share the file.
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
    """Whether another holds the lock."""
    found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _one(fcntl.F_WRLCK, byte))
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _one(kind: int, byte: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)


def _both(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, _CLAIM, _SIGNED + 1, 0)
