"""Installing Debian packages, as root, so that they start nothing by themselves."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.shared import Unavailable

_POLICY = Path("/usr/sbin/policy-rc.d")


def install(what: str, *packages: str) -> None:
    """Install packages, or raise `Unavailable`, naming `what` they are for."""
    named = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"{what} is not installed here (apt-get install {named}, as root)")
    with _one_at_a_time():
        ours = not _POLICY.exists()
        if ours:
            _POLICY.write_text("#!/bin/sh\nexit 101\n")
            _POLICY.chmod(0o755)
        try:
            _apt_get(what, "update", "-q")
            _apt_get(what, "install", "-q", "-y", "--no-install-recommends", *packages)
        finally:
            if ours:
                _POLICY.unlink()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait for other test processes that install: apt-get does not wait for another one."""
    directory = os.open(_POLICY.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _apt_get(what: str, *arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", *arguments],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = " ".join(done.stdout.strip().splitlines()[-1:])
        raise Unavailable(f"{what} could not be installed: apt-get {arguments[0]}: {last}")
