"""Which shard owns which partition of a storage topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tailrace.errors import InvalidValue
from tailrace.topic.lineage import Shape, consistent
from tailrace.topic.router import RouterKind


class Assignment(Protocol):
    """A strategy: it divides the partitions of every storage topic among the shards.

    Every partition belongs to exactly one shard. Uneven and empty shards are valid.
    """

    def partitions(self, shard: int, shards: int, partitions: int) -> Sequence[int]:
        """Return the partitions of a shard in a storage topic with this number, in order."""

    def owner(self, partition: int, shards: int, partitions: int) -> int:
        """Return the shard of a partition."""

    def consistent(self, kind: RouterKind, shapes: Sequence[Shape], shards: int) -> bool:
        """True if every key has the same shard in storage topics of all these shapes."""


class Contiguous:
    """Shard s has the partitions from ``s * P // S`` up to, not including, ``(s + 1) * P // S``."""

    def partitions(self, shard: int, shards: int, partitions: int) -> Sequence[int]:
        """Return the partitions of a shard."""
        return range(shard * partitions // shards, (shard + 1) * partitions // shards)

    def owner(self, partition: int, shards: int, partitions: int) -> int:
        """Return the shard of a partition."""
        return ((partition + 1) * shards - 1) // partitions

    def consistent(self, kind: RouterKind, shapes: Sequence[Shape], shards: int) -> bool:
        """True if every key has the same shard in all these storage topics."""
        return consistent(kind, shapes, shards)


CONTIGUOUS: Final = "contiguous"
_ASSIGNMENTS: Final[Mapping[str, Assignment]] = {CONTIGUOUS: Contiguous()}


def assignment(name: str) -> Assignment:
    """Return the strategy of a name; `InvalidValue` lists the names."""
    found = _ASSIGNMENTS.get(name)
    if found is None:
        raise InvalidValue("assignment", name, ", ".join(_ASSIGNMENTS))
    return found
