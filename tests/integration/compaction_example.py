"""A hub with an example log to be compacted, and checks of what is left."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.log.segment import segment_name
from tailrace.message import Partition
from tests.support.records import P0, create, read, record

EXAMPLE = "AABBAABBCACBAACBA"
"""The keys at the offsets 0 to 16 of the example. Those of the active segment follow."""

ACTIVE = "AABBAABBCAC"
SEGMENT_BYTES = len(EXAMPLE) * 31
BEFORE = list(range(len(EXAMPLE + ACTIVE)))
AFTER = BEFORE[14:]


def push(backend: EmbeddedBackend, keys: str, partition: Partition = P0) -> None:
    """Push one record of 31 bytes for each key, each in its own batch."""
    for key in keys:
        backend.commit(Transaction(((partition, (record(b"x", key.encode()),)),)))


def open_hub(directory: Path, **options: Any) -> EmbeddedBackend:
    return EmbeddedBackend.open(directory, segment_bytes=SEGMENT_BYTES, **options)


def make_example(directory: Path, sync: str = "none") -> None:
    with closing(open_hub(directory, sync=sync)) as backend:
        create(backend)
        push(backend, EXAMPLE + ACTIVE)


def offsets(backend: EmbeddedBackend, partition: Partition = P0) -> list[int]:
    return [found.offset for found in read(backend, partition)]


def check_whole(backend: EmbeddedBackend, partition: Partition = P0) -> None:
    """Check that nothing is damaged, and that the partition has exactly the files of its rows."""
    assert [damage for _, damage in backend.log.verify(partition) if damage is not None] == []
    named = {info.log_path for info in backend.log.segments(partition)}
    (directory,) = {path.parent for path in named} or {Path("missing")}
    # An append that was never committed may have begun a segment.
    begun = segment_name(backend.log.bounds(partition).end)
    files = {path.stem for path in directory.glob("*")}
    assert files - {begun} == {path.stem for path in named}
    rows = backend._database().rows(
        "SELECT p.entries, count(e.base) FROM partitions p"
        " LEFT JOIN entries e ON e.partition = p.id GROUP BY p.id"
    )
    assert [stored for stored, _ in rows] == [counted for _, counted in rows]
