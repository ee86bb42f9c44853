"""The checkpoint of a streaming query, as far as it identifies a batch.

Spark writes `metadata`, with the id of the query, when a query first starts, and `offsets/N` before
it runs batch N. After a restart it repeats a batch with the offsets of that file.
"""

from __future__ import annotations

import hashlib
import logging
import re
from functools import cache
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import fs

_FILE: Final = re.compile(r"file:/+")
_FILE_BYTES_MAX: Final = 64 << 20
_DIGEST_BYTES: Final = 8
_LOG: Final = logging.getLogger(__name__)


class _Metadata(msgspec.Struct):
    id: str


def batch_digest(location: str, query: str, batch: int) -> bytes | None:
    """Return a digest of the offsets of a batch; None, with a warning, if they cannot be read.

    The checkpoint must be that of the query. A location is a path or a URI, as Spark takes it.
    """
    try:
        files, root = _file_system(location)
        metadata = msgspec.json.decode(_read(files, f"{root}/metadata"), type=_Metadata)
        if metadata.id != query:
            raise ValueError(f"it belongs to query {metadata.id}")
        offsets = _read(files, f"{root}/offsets/{batch}")
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        _warn(location, str(error))
        return None
    return hashlib.blake2b(offsets, digest_size=_DIGEST_BYTES).digest()


def _file_system(location: str) -> tuple[fs.FileSystem, str]:
    if _FILE.match(location):
        location = _FILE.sub("/", location, count=1)
    if "://" not in location:
        return fs.LocalFileSystem(), location.rstrip("/")
    # The scheme by which Spark names Amazon's object store.
    found, root = fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", location))
    return found, root.rstrip("/")


def _read(files: fs.FileSystem, path: str) -> bytes:
    with files.open_input_stream(path) as stream:
        return stream.read(_FILE_BYTES_MAX)


@cache
def _warn(location: str, reason: str) -> None:
    _LOG.warning(
        "tailrace cannot read the checkpoint %s (%s): rows are stored at least once, and a batch "
        "that Spark repeats is stored again",
        location,
        reason,
    )
