"""Where pushes go now: the storage topic at the produce pointer, and in it each key's partition."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.message import Partition
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Shape
from tailrace.topic.router import NO_KEY, RouterKind, hash_key, hash_keys, route

_FEW = 64
"""Below so many keys they are faster routed one by one."""


class Target(NamedTuple):
    """The partitions of the storage topic at the produce pointer, and what routes keys to them."""

    storage: int
    shape: Shape
    router: RouterKind
    partitions: tuple[Partition, ...]
    since: Mapping[str, int]
    """The topic, and the store version it is known from: for `Transaction.since`."""

    @classmethod
    def of(cls, topic: str, definition: Definition, version: int) -> Target:
        """The target that a definition says, which is stored at that version."""
        storage, shape = definition.pointer, definition.shape
        partitions = tuple(Partition(topic, storage, number) for number in range(shape.partitions))
        return cls(storage, shape, definition.router, partitions, {topic: version})

    def any_number(self) -> int:
        """A partition at random, for the messages of one batch that have no key."""
        return random.randrange(len(self.partitions))

    def number_of(self, key: bytes) -> int:
        """The partition of a key."""
        if len(self.partitions) == 1:
            return 0
        return route(self.router, hash_key(key), self.shape.partitions, self.shape.k)

    def partition_of(self, key: bytes | None) -> Partition:
        """The partition of one message: its key's, or any."""
        return self.partitions[self.number_of(key) if key else self.any_number()]

    def numbers_of(self, keys: Sequence[bytes] | pa.Array[Any]) -> npt.NDArray[np.int64]:
        """The partition of each message of a batch; those without a key go to any one together."""
        if not isinstance(keys, pa.Array):
            if len(keys) < _FEW:
                unkeyed = self.any_number()
                return np.array([self.number_of(key) if key else unkeyed for key in keys])
            keys = pa.array(keys, pa.binary())
        hashes = hash_keys(keys)
        numbers = route(self.router, hashes, self.shape.partitions, self.shape.k)
        numbers[hashes == NO_KEY] = self.any_number()
        return numbers
