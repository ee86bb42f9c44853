"""Files and directories that several users of a machine share.

The rights of a new file are those that the umask leaves: 0666 and 0777 without the bits of the
umask. A directory with the setgid bit that its group may write is a *shared directory*: every file
and directory made in it gets its group (from the kernel) and may be read and written by that group,
whatever the umask. Directories pass that on.

A file that root makes in another user's directory belongs to that user, as SQLite does with its own
files. So a command that an administrator runs leaves no file that the owner cannot write.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_SHARED: Final = stat.S_ISGID | stat.S_IWGRP
_GROUP_FILE: Final = stat.S_IRGRP | stat.S_IWGRP
_GROUP_DIRECTORY: Final = stat.S_IRWXG | stat.S_ISGID


def open_or_create(path: Path) -> int:
    """Open a file for reading and writing; create it if it is missing. Returns its descriptor."""
    flags = os.O_RDWR | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            if path.is_symlink():  # to nothing
                raise
            continue
        try:
            _share(descriptor, path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def make_directory(path: Path) -> None:
    """Make a directory in an existing one; does nothing if it exists."""
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    share(path)


def share(made: Path) -> None:
    """Give a directory or socket that this process has just made the rights that new files of its
    directory have."""
    # A link that another user may have put there meanwhile is not followed.
    descriptor = os.open(made, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _share(descriptor, made.parent)
    finally:
        os.close(descriptor)


def _share(descriptor: int, parent: Path) -> None:
    directory, made = parent.stat(), os.fstat(descriptor)
    where = f"/proc/self/fd/{descriptor}"
    if os.geteuid() == 0 and directory.st_uid != made.st_uid:
        with suppress(PermissionError):  # root of a container may not change owners
            os.chown(where, directory.st_uid, directory.st_gid)
    if directory.st_mode & _SHARED == _SHARED:
        wanted = _GROUP_DIRECTORY if stat.S_ISDIR(made.st_mode) else _GROUP_FILE
        if made.st_mode & wanted != wanted:
            os.chmod(where, stat.S_IMODE(made.st_mode) | wanted)
