"""LMDB as a log: offsets as keys, appended in order, a transaction a batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from bench.payloads import TIMESTAMP_MS

_MAP_BYTES = 4 * 2**30
_OFFSET = struct.Struct(">q")
_HEAD = struct.Struct(">qI")


@contextmanager
def opened(directory: Path) -> Iterator[Any]:
    """Open an empty log that syncs nothing."""
    environment = lmdb.open(str(directory), map_size=_MAP_BYTES, sync=False, writemap=True)
    try:
        yield environment
    finally:
        environment.close()


def put(environment: Any, messages: list[tuple[bytes, bytes]], base: int) -> None:
    """Append one batch in one transaction, message by message."""
    pack_offset, pack_head = _OFFSET.pack, _HEAD.pack
    with environment.begin(write=True) as transaction:
        for offset, (key, value) in enumerate(messages, base):
            data = pack_head(TIMESTAMP_MS, len(key)) + key + value
            transaction.put(pack_offset(offset), data, append=True)


def tuples(environment: Any) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Return everything, as offset, timestamp, key and value."""
    unpack_offset, unpack_head = _OFFSET.unpack, _HEAD.unpack_from
    with environment.begin() as transaction, transaction.cursor() as cursor:
        for offset, data in cursor:
            timestamp, key_length = unpack_head(data)
            end = 12 + key_length
            yield unpack_offset(offset)[0], timestamp, data[12:end], data[end:]
