"""The target of pushes: the storage topic at the produce pointer, and the partition of each key."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Shape
from tailrace.topic.router import NO_KEY, RouterKind, hash_key, hash_keys, route

_FEW = 64
"""Below this number of keys, routing them one by one is faster."""


class Target(NamedTuple):
    """The partitions of the storage topic at the produce pointer, and the router of keys to
    them."""

    storage: int
    shape: Shape
    router: RouterKind
    partitions: tuple[Partition, ...]
    since: Mapping[str, int]
    """The topic, and the store version of its definition: for `Transaction.since`."""

    @classmethod
    def of(cls, topic: str, definition: Definition, version: int) -> Target:
        """Return the target of a definition that is stored at that version."""
        storage, shape = definition.pointer, definition.shape
        partitions = tuple(Partition(topic, storage, number) for number in range(shape.partitions))
        return cls(storage, shape, definition.router, partitions, {topic: version})

    def any_number(self) -> int:
        """Return a random partition, for the messages of one batch that have no key."""
        return random.randrange(len(self.partitions))

    def number_of(self, key: bytes) -> int:
        """Return the partition of a key."""
        if len(self.partitions) == 1:
            return 0
        return route(self.router, hash_key(key), self.shape.partitions, self.shape.k)

    def partition_of(self, key: bytes | None) -> Partition:
        """Return the partition of one message: its key's, or a random one."""
        return self.partitions[self.number_of(key) if key else self.any_number()]

    def numbers_of(self, keys: Sequence[bytes] | pa.Array[Any]) -> npt.NDArray[np.int64]:
        """Return the partition of each message of a batch; messages without a key go together to
        a random one."""
        if not isinstance(keys, pa.Array):
            if len(keys) < _FEW:
                unkeyed = self.any_number()
                return np.array([self.number_of(key) if key else unkeyed for key in keys])
            keys = pa.array(keys, pa.binary())
        hashes = hash_keys(keys)
        numbers = route(self.router, hashes, self.shape.partitions, self.shape.k)
        numbers[hashes == NO_KEY] = self.any_number()
        return numbers

    def check_numbers(self, numbers: pa.Array[Any]) -> None:
        """Raise `InvalidValue`, with the valid range, unless each number that is not null is that
        of a partition."""
        for number in (pc.min(numbers).as_py(), pc.max(numbers).as_py()):
            if number is not None and not 0 <= number < len(self.partitions):
                storage = f"{self.partitions[0].topic}, storage topic {self.storage}"
                valid = f"0 to {len(self.partitions) - 1} for {storage}; null to choose by key"
                raise InvalidValue("a partition", number, valid)
