"""The writes that a hub has stored, so that a write that Spark repeats is recognised.

The table `spark/writes` has, for each producer, the numbers of its newest writes and what each
contained. A producer is a streaming query, by the id in its checkpoint, or an application that
numbers its writes itself. The entry is written in the transaction that stores the rows, under a
fence on the producer's name: two drivers of one checkpoint cannot both store a batch.

The contents of a batch are a digest of its offsets in the checkpoint. Spark does not sync its
checkpoint: after a crash of the machine, and in a checkpoint that was restored from a copy, a batch
number can come again with other rows. Such a batch is not skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction, raise_fence
from tailrace.errors import BackendUnavailable, Fenced, OutcomeUnknown
from tailrace.topic.view import View, commit_following

TABLE: Final = "spark/writes"
HISTORY_MAX: Final = 100
"""The number of a producer's newest writes that are remembered, as many as Spark's checkpoint
keeps."""
ATTEMPTS_MAX: Final = 5
"""The number of attempts to store a write whose earlier outcome was unknown or fenced."""


class WriteId(NamedTuple):
    """The number of a write of a producer, and a digest of its contents.

    Without a digest, every number up to the newest stored one counts as stored.
    """

    producer: str
    number: int
    contents: bytes | None


@dataclass(frozen=True, slots=True)
class StoredWrites:
    """The newest writes of a producer: their contents by number."""

    contents: Mapping[int, bytes]

    @classmethod
    def decode(cls, value: bytes | None) -> StoredWrites:
        """Return what a table entry has; no writes if there is none."""
        return cls(msgspec.msgpack.decode(value, type=dict[int, bytes]) if value else {})

    def encode(self) -> bytes:
        """Return the value of the table entry."""
        return msgspec.msgpack.encode(dict(self.contents))

    def has(self, write: WriteId) -> bool:
        """True if this write is stored."""
        if write.contents is None:
            return any(number >= write.number for number in self.contents)
        return self.contents.get(write.number) == write.contents

    def plus(self, write: WriteId) -> StoredWrites:
        """Return these writes and a new one. Numbers above it belong to an abandoned history."""
        kept = sorted(number for number in self.contents if number < write.number)
        newest = {number: self.contents[number] for number in kept[-(HISTORY_MAX - 1) :]}
        return StoredWrites({**newest, write.number: write.contents or b""})


def store_once(
    backend: Backend,
    views: Mapping[str, View],
    build: Callable[[], Transaction],
    write: WriteId,
) -> bool:
    """Commit the transaction that `build` makes, unless this write is stored already.

    Returns True if it was committed now. After an unknown outcome, or a commit of another driver at
    the same time, the table shows whether the write is stored.
    """
    key = TableKey(TABLE, write.producer.encode())
    for _ in range(ATTEMPTS_MAX):
        # Before the read: no older attempt can store the write after it.
        fence = raise_fence(backend.store, f"spark/{write.producer}")
        stored = StoredWrites.decode(backend.table.get(*key))
        if stored.has(write):
            return False
        table = {key: stored.plus(write).encode()}
        try:
            commit_following(backend, views, _with(build, table, fence))
        except (Fenced, OutcomeUnknown):
            continue
        return True
    raise BackendUnavailable(
        f"write {write.number} of {write.producer} was not stored in {ATTEMPTS_MAX} attempts",
        "start the query again; stop other drivers that use the same checkpoint",
    )


def _with(
    build: Callable[[], Transaction], table: Mapping[TableKey, bytes], fence: Fence
) -> Callable[[], Transaction]:
    return lambda: replace(build(), table=table, fence=fence)
