"""Directories that executors share with the driver, or have only by name.

The driver writes a file with a random text, the token, into a directory. A process that reads the
same text from the same path has the same directory. A directory of another host, with the same
name, has no such file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """A directory with a token of this run, in a folder of it.

    `boot` is the kernel that its processes must run on; None if they may run on any host.
    """

    directory: str
    name: str
    token: str
    folder: str = ""
    boot: str | None = None

    @property
    def token_file(self) -> Path:
        """The path of the token."""
        return Path(self.directory, self.folder, f".tailrace-{self.name}.run")

    def answer_file(self, host: str, process: int) -> Path:
        """Return the path of the file by which an executor proves that it can write."""
        return Path(self.directory, self.folder, f".tailrace-{self.name}.{host}.{process}")

    def read_error(self) -> str | None:
        """Return why this process cannot read the directory; None if it can."""
        try:
            found = self.token_file.read_text()
        except FileNotFoundError:
            there = os.path.isdir(self.directory)
            return "it has another directory of this name" if there else "it has no such directory"
        except OSError as error:
            return error.strerror or str(error)
        if found != self.token:
            return "it has another directory of this name"
        if self.boot not in (None, boot_id()):
            return "it is another host, and files of this kind are locked on one host only"
        return None

    def write_error(self, host: str, process: int) -> str | None:
        """Return why this process cannot read and write the directory; None if it can.

        It leaves its answer file, which the driver looks for and removes.
        """
        error = self.read_error()
        if error is not None:
            return error
        try:
            self.answer_file(host, process).write_text(self.token)
        except OSError as failed:
            return failed.strerror or str(failed)
        return None

    def remove(self) -> None:
        """Remove the token and all answers, of this run and of runs that were killed."""
        for file in Path(self.directory, self.folder).glob(f".tailrace-{self.name}.*"):
            with contextlib.suppress(OSError):
                file.unlink()


def share(directory: str, name: str, folder: str = "", *, one_host: bool) -> SharedDirectory:
    """Write a new token into a folder of a directory, for a writer of this name; or `OSError`."""
    boot = boot_id() if one_host else None
    made = SharedDirectory(directory, name.replace("/", "~"), secrets.token_hex(16), folder, boot)
    made.remove()
    made.token_file.write_text(made.token)
    return made


def boot_id() -> str:
    """Return an identifier of the running kernel; containers of a host have the same one."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
