"""The shard of a message in a generation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tailrace.subscription.layout.assignment import Assignment
from tailrace.topic.lineage import Shape, least_hash
from tailrace.topic.router import Hashes, RouterKind, hash_key, route


class KeyShards(NamedTuple):
    """The shards of a generation. `shapes` are the storage topics of MQ that it reads: the newest
    of them decides which shard has a key."""

    strategy: Assignment
    kind: RouterKind
    shapes: Sequence[Shape]
    shards: int

    def of_key(self, key: bytes) -> int:
        """Return the shard of a key."""
        return self._of_hash(hash_key(key))

    def of_pushed(self, storage: int, partition: int) -> int:
        """Return the shard of the messages without a key that were pushed to a partition."""
        return self._of_hash(least_hash(self.kind, self.shapes[storage], partition))

    def of_hashes(self, hashes: Hashes) -> Hashes:
        """Return the shard of each hash."""
        newest = self.shapes[-1]
        partitions = route(self.kind, hashes, newest.partitions, newest.k)
        owners = [
            self.strategy.owner(partition, self.shards, newest.partitions)
            for partition in range(newest.partitions)
        ]
        return np.array(owners, np.int64)[partitions]

    def agrees(self, shape: Shape) -> bool:
        """True if every key has the same shard in a storage topic of this shape."""
        return self.strategy.consistent(self.kind, (shape, self.shapes[-1]), self.shards)

    def _of_hash(self, hashed: int) -> int:
        newest = self.shapes[-1]
        partition = route(self.kind, hashed, newest.partitions, newest.k)
        return self.strategy.owner(partition, self.shards, newest.partitions)
