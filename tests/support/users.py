"""Other users of the machine, for tests of rights. Only root can become another user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

API: Final = 61_001
WORKER: Final = 61_002
STRANGER: Final = 61_003
SHARED_GROUP: Final = 61_100
"""Numbers that no account of the machine has."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def become(user: int, *groups: int, umask: int = 0o022) -> None:
    """Be another user from now on, in a process of its own. The first group is the primary one."""
    os.setgroups(groups)
    os.setgid(groups[0] if groups else user)
    os.setuid(user)
    os.umask(umask)


@contextmanager
def directory_for_all() -> Iterator[Path]:
    """Provide a directory that every user may enter, which the directories of pytest are not."""
    with TemporaryDirectory(prefix="tailrace-users-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def owned(directory: Path, mode: int = 0o755) -> Path:
    """Make a directory that belongs to the user `API` and to the shared group."""
    directory.mkdir()
    os.chown(directory, API, SHARED_GROUP)
    directory.chmod(mode)
    return directory
