"""What makes a named producer idempotent: a fence on its name, and a number kept beside its records.

The table ``producers/TOPIC/IDENTITY`` has, per name, how many messages of it are stored, written in the commit that
stores them. Taking a name raises its fence and then reads the number, so nothing of an earlier owner can be stored
after that. After a commit of unknown outcome the owner takes its own name again, which settles the outcome.
"""

from __future__ import annotations

from tailrace.backend.contract import FENCES, Backend, Change, Fence, TableKey, raise_fence
from tailrace.errors import Conflict, Fenced
from tailrace.topic.composite import check_name


class ProducerName:
    """A name that this producer holds, until a newer one takes it."""

    __slots__ = ("_backend", "_key", "fence", "stored")

    def __init__(self, backend: Backend, topic: str, identity: str, name: str) -> None:
        """Take the name: from now on every earlier holder of it is `Fenced`."""
        self._backend = backend
        self._key = TableKey(producers_table(topic, identity), check_name("producer", name).encode())
        self.fence = raise_fence(backend.store, f"producer/{topic}/{name}")
        self.stored = self._read()

    def written(self, number: int) -> dict[TableKey, bytes]:
        """The table write that goes with the messages up to the `number`-th."""
        return {self._key: number.to_bytes(8, "big")}

    def settle(self) -> None:
        """After an unknown outcome: make sure that nothing under way can still be stored, and read the number.

        `Fenced` when somebody newer has the name.
        """
        key = FENCES + self.fence.name
        try:
            epoch = self._backend.store.commit(Change(expect={key: self.fence.epoch}, writes={key: b""}))
        except Conflict as newer:
            raise Fenced(self.fence.name, self.fence.epoch, newer.version) from newer
        self.fence = Fence(self.fence.name, epoch)
        self.stored = self._read()

    def _read(self) -> int:
        return int.from_bytes(self._backend.table.get(*self._key) or b"", "big")


def producers_table(topic: str, identity: str) -> str:
    """The table with the numbers of a topic's named producers."""
    return f"producers/{topic}/{identity}"
