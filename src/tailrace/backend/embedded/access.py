"""The error of a process that may not write a hub: which user it is, and whose the files are."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from tailrace.errors import BackendUnavailable, ReadOnlyHub

_NOT_ALLOWED: Final = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


def not_writable(directory: Path, error: OSError | apsw.Error) -> ReadOnlyHub | None:
    """Return the error for a hub that this process may not write; None if `error` has another
    cause."""
    if isinstance(error, OSError):
        if error.errno not in _NOT_ALLOWED:
            return None
        path = Path(error.filename or directory)
    else:
        found = _first_not_writable(directory)
        if found is None:
            return None
        path = found
    user = _user(os.geteuid())
    if os.statvfs(_existing(path)).f_flag & os.ST_RDONLY:
        problem = f"{path} is on a read-only file system"
        remedy = "mount it for writing"
    else:
        closed = _closed_directory(path)
        doing = f"write {path}" if closed is None else f"enter {closed}"
        path = closed or path
        problem = f"user {user} may not {doing}: {_rights(path)}"
        owner = _user(_existing(path).stat().st_uid)
        remedy = (
            f"run as {owner}, or share the hub with a group of both users:"
            f" chgrp -R GROUP {directory} && chmod -R g+rwX {directory}"
            f" && find {directory} -type d -exec chmod g+s {{}} +"
        )
    return ReadOnlyHub(
        problem,
        "nothing was written",
        f"{remedy}; to read only: tailrace.open({str(directory)!r}, mode='ro'), or --read-only",
    )


def not_readable(directory: Path, error: OSError | apsw.Error) -> BackendUnavailable:
    """Return the error for a hub that cannot be read."""
    names = ("", "hub.db", "hub.db-wal", "hub.db-shm")
    for path in (directory / name for name in names):
        if not os.access(_existing(path), os.R_OK):
            return BackendUnavailable(
                f"user {_user(os.geteuid())} may not read {path}: {_rights(path)}",
                f"run as its owner, or allow it: chmod -R g+rX {directory}",
            )
    return BackendUnavailable(f"{directory} cannot be opened as a hub: {error}")


def _first_not_writable(directory: Path) -> Path | None:
    """Return a file that the process cannot write, because the errors of SQLite name none."""
    names = ("", "hub.db", "hub.db-wal", "hub.db-shm", "hub.lock", "hub.commit", "hub.wake")
    for path in (directory / name for name in names):
        if path.exists() and not os.access(path, os.W_OK):
            return path
    return None


def _closed_directory(path: Path) -> Path | None:
    """Return the directory above a path that the process may not enter, if there is one."""
    for parent in reversed(path.absolute().parents):
        if parent.is_dir() and not os.access(parent, os.X_OK):
            return parent
    return None


def _rights(path: Path) -> str:
    status = _existing(path).stat()
    owner, group = _user(status.st_uid), _group(status.st_gid)
    return f"it belongs to {owner}, group {group}, mode {stat.filemode(status.st_mode)}"


def _existing(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists and can be inspected."""
    for each in (path, *path.absolute().parents):
        with suppress(OSError):
            each.stat()
            return each
    return Path("/")


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def _group(number: int) -> str:
    try:
        return f"{grp.getgrgid(number).gr_name} (gid {number})"
    except KeyError:
        return f"gid {number}"
