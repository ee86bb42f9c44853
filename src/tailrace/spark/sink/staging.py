"""The directory in which executors leave the rows of large tasks for the driver.

    DIRECTORY/id                    a token, by which an executor knows that it sees this directory
    DIRECTORY/query-ID/BATCH-*      files of a stream, by the id of its query and the batch
    DIRECTORY/write-ID/*            files of a batch write

A file counts only if a commit message names it. The files of a write are removed when it was
committed or aborted. What a killed driver leaves behind is removed by the next commit of the same
query, or for batch writes after `WRITE_AGE_MAX_S`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import ConfigError
from tailrace.log.sharing import make_directory, open_or_create

WRITE_AGE_MAX_S: Final = 7 * 24 * 3600.0
"""How long the files of a batch write are kept if its driver died."""

_TOKEN: Final = "id"
_QUERY: Final = "query-"
_WRITE: Final = "write-"


def staging_in_hub(hub: str) -> Path:
    """Return the directory that is used if none is given."""
    return Path(hub, "hub.spark", "staging")


class StagingDirectory(NamedTuple):
    """A directory for staged files, and the token that its file `id` has."""

    path: str
    token: str

    @classmethod
    def prepare(cls, path: Path) -> StagingDirectory:
        """Create the directory, if it is missing, and read its token. For the driver."""
        try:
            for each in (*reversed(path.parents), path):
                if not each.is_dir():
                    make_directory(each)
            return cls(str(path), _token(path / _TOKEN))
        except OSError as error:
            raise ConfigError(
                f"the staging directory {path} cannot be used: {error.strerror}",
                "valid: option staging=DIRECTORY, a directory that the driver and all executors "
                "share and can write",
            ) from error

    def is_reachable(self) -> bool:
        """True if this process sees the directory that the driver prepared, and may write to it."""
        try:
            found = Path(self.path, _TOKEN).read_text()
        except (OSError, ValueError):
            return False
        return found == self.token and os.access(self.path, os.W_OK | os.X_OK)

    def new_file(self, folder: str, prefix: str) -> Path:
        """Return the path of a new file in a folder, which is created if it is missing."""
        parent = Path(self.path, folder)
        make_directory(parent)
        return parent / f"{prefix}{uuid.uuid4().hex}.arrow"

    def remove_batches(self, query: str, newest: int) -> None:
        """Remove the files of a query's batches up to `newest`; one that cannot be stays."""
        folder = Path(self.path, query_folder(query))
        for path in _listed(folder):
            batch, _, _ = path.name.partition("-")
            if batch.isdecimal() and int(batch) <= newest:
                with contextlib.suppress(OSError):  # It may belong to another user.
                    path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # It has newer files, or there is none.
            folder.rmdir()

    def remove_write(self, folder: str, now_s: float | None = None) -> None:
        """Remove the files of a batch write, and those of batch writes whose drivers died."""
        shutil.rmtree(Path(self.path, folder), ignore_errors=True)
        oldest_s = (time.time() if now_s is None else now_s) - WRITE_AGE_MAX_S
        for other in _listed(Path(self.path)):
            if other.name.startswith(_WRITE) and _changed_s(other) < oldest_s:
                shutil.rmtree(other, ignore_errors=True)


def query_folder(query: str) -> str:
    """Return the folder of a stream's files."""
    return f"{_QUERY}{query}"


def new_write_folder() -> str:
    """Return the folder of a new batch write."""
    return f"{_WRITE}{uuid.uuid4().hex}"


def _token(path: Path) -> str:
    """Return the token in a file; creates the file, whole, if it is missing."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    draft = path.with_name(f"{_TOKEN}-{uuid.uuid4().hex}")
    os.close(open_or_create(draft))
    try:
        draft.write_text(uuid.uuid4().hex)
        with contextlib.suppress(FileExistsError):  # Another driver was first.
            os.link(draft, path)
    finally:
        draft.unlink()
    return path.read_text()


def _listed(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:  # It does not exist, or another user has it.
        return


def _changed_s(folder: Path) -> float:
    """Return the last change of a folder or of a file in it; infinity if it was just removed."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return float("inf")
