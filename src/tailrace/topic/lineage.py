"""Lineage: the shapes of storage topics, and which streams must be finished before others.

A stream is one partition of one storage topic, here a pair (storage, partition). Lineage is
computed from the shapes of a topic's storage topics and never stored. So when a consumer's progress
moves back, the streams that depend on it are no longer finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd, lcm
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tailrace.amount import is_whole
from tailrace.errors import InvalidValue
from tailrace.topic.router import HASHES, Hashes, RouterKind, route

PARTITIONS_MAX = 10_000
"""The largest number of partitions of a storage topic, and of shards."""

_VALID_COUNT = f"a whole number from 1 to {PARTITIONS_MAX:,}"
_SCAN = 1 << 18
_PROBES = 1 << 12
_GOLDEN = 0x9E3779B1

Stream: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of partitions of a storage topic, and the factor `k` by which it was scaled up."""

    partitions: int
    k: int = 1

    @property
    def base(self) -> int:
        """The number of blocks of `k` partitions. A key's block is its hash modulo this number."""
        return self.partitions // self.k


class StreamState(NamedTuple):
    """The state of a stream for one consumer.

    `drained`: no readable record between the low-water mark and the end is unacknowledged.
    """

    sealed: bool
    drained: bool


_DELETED = StreamState(sealed=True, drained=True)


def check_count(partitions: int, any_count: bool) -> None:
    """Raise `InvalidValue` unless a storage topic may have this number of partitions."""
    if not (is_whole(partitions) and 1 <= partitions <= PARTITIONS_MAX):
        raise InvalidValue("partitions", partitions, _VALID_COUNT)
    if not (any_count or is_usual_count(partitions)):
        valid = "1, 2, 3 or a multiple of 4 or 6"
        raise InvalidValue(
            "partitions", partitions, valid, "any other: any_count=True, or --any-count"
        )


def is_usual_count(partitions: int) -> bool:
    """True if a storage topic may have this number of partitions without `any_count`."""
    return partitions <= 3 or partitions % 4 == 0 or partitions % 6 == 0


def next_shape(previous: Shape, partitions: int) -> Shape:
    """Return the shape of a storage topic added after another: it keeps the base if possible."""
    k = 1 if partitions % previous.base else partitions // previous.base
    return Shape(partitions, k)


def follows(kind: RouterKind, previous: Shape, current: Shape, partition: int) -> frozenset[int]:
    """Return the partitions of the previous storage topic that must be finished before this
    partition may start.

    Never fewer than the keys require; at the level of base blocks never more.
    """
    if kind is RouterKind.RANGE:
        first = _first_hash(partition, current.partitions)
        last = _first_hash(partition + 1, current.partitions) - 1
        return frozenset(
            range(
                route(kind, first, previous.partitions, 1),
                route(kind, last, previous.partitions, 1) + 1,
            )
        )
    blocks = gcd(previous.base, current.base)
    return _blocks_like(previous, partition // current.k % blocks, blocks)


@lru_cache(maxsize=1024)
def _blocks_like(shape: Shape, residue: int, blocks: int) -> frozenset[int]:
    """Return the partitions of the base blocks that are `residue` modulo `blocks`."""
    return frozenset(
        block * shape.k + place
        for block in range(residue, shape.base, blocks)
        for place in range(shape.k)
    )


def walk(
    kind: RouterKind, shapes: Sequence[Shape], states: Mapping[Stream, StreamState]
) -> Iterator[tuple[Stream, bool, bool]]:
    """Yield every stream, oldest storage topic first, with two flags: all streams that it follows
    are finished, and it is finished itself.

    A stream is finished when it is sealed, drained, and follows only finished streams. A stream
    without a state belongs to a deleted storage topic: it blocks no other stream.
    """
    before: set[int] = set()
    for storage, shape in enumerate(shapes):
        here: set[int] = set()
        verdicts: dict[frozenset[int], bool] = {frozenset(): True}
        for partition in range(shape.partitions):
            parents: frozenset[int] = frozenset()
            if storage > 0:
                parents = follows(kind, shapes[storage - 1], shape, partition)
            if parents not in verdicts:
                verdicts[parents] = parents <= before
            free = verdicts[parents]
            state = states.get((storage, partition), _DELETED)
            finished = free and state.sealed and state.drained
            if finished:
                here.add(partition)
            yield (storage, partition), free, finished
        before = here


def followers(kind: RouterKind, shapes: Sequence[Shape], streams: Iterable[Stream]) -> set[Stream]:
    """Return the streams that follow some of these, directly or indirectly."""
    reached = set(streams)
    found: set[Stream] = set()
    for storage in range(1, len(shapes)):
        before, here = shapes[storage - 1], shapes[storage]
        for partition in range(here.partitions):
            parents = follows(kind, before, here, partition)
            if any((storage - 1, parent) in reached for parent in parents):
                found.add((storage, partition))
        reached |= found
    return found


def consistent(kind: RouterKind, shapes: Sequence[Shape], shards: int) -> bool:
    """True if every key has the same shard in all these storage topics.

    Shard s has the partitions from ``s * P // shards`` up to, not including,
    ``(s + 1) * P // shards``, also if `shards` does not divide P.
    """
    if not 1 <= shards <= PARTITIONS_MAX:
        raise InvalidValue("shards", shards, _VALID_COUNT)
    return all(_agree(kind, one, other, shards) for one, other in pairwise(shapes))


@lru_cache(maxsize=1024)
def _agree(kind: RouterKind, one: Shape, other: Shape, shards: int) -> bool:
    if one == other:
        return True
    if kind is RouterKind.RANGE:
        return all(
            _first_hash(shard * one.partitions // shards, one.partitions)
            == _first_hash(shard * other.partitions // shards, other.partitions)
            for shard in range(1, shards)
        )
    # Any two base blocks that are equal modulo `blocks` share keys. So if blocks are
    # within shards, all blocks of a residue must be in one shard.
    blocks = gcd(one.base, other.base)
    owners: list[set[int]] = [set() for _ in range(blocks)]
    split = False
    for shape in (one, other):
        shard_of = _shards(np.arange(shape.partitions), shape.partitions, shards)
        by_block = shard_of.reshape(shape.base, shape.k)
        split = split or bool((by_block[:, 0] != by_block[:, -1]).any())
        for residue in range(blocks):
            owners[residue].update(by_block[residue::blocks].ravel().tolist())
    if all(len(shards_of_residue) == 1 for shards_of_residue in owners):
        return True
    return split and not _some_key_moves(kind, one, other, shards)


def _some_key_moves(kind: RouterKind, one: Shape, other: Shape, shards: int) -> bool:
    """Search for a hash whose shards differ: samples first, then all hashes until they repeat."""
    scattered = np.arange(_PROBES) * _GOLDEN % HASHES
    if _moved(kind, one, other, shards, scattered).any():
        return True
    end = min(HASHES, lcm(one.partitions * one.k, other.partitions * other.k))
    return any(
        _moved(kind, one, other, shards, np.arange(start, min(start + _SCAN, end))).any()
        for start in range(0, end, _SCAN)
    )


def moved_fraction(kind: RouterKind, one: Shape, other: Shape, shards: int) -> float:
    """Return the fraction of keys that have another shard in the other storage topic.

    Counted over 2^18 hashes; exact if the pattern of the two shapes repeats within them.
    """
    if kind is RouterKind.RANGE:
        sample = np.arange(_SCAN) * (HASHES // _SCAN)
    else:
        sample = np.arange(min(_SCAN, lcm(one.partitions * one.k, other.partitions * other.k)))
    return float(_moved(kind, one, other, shards, sample).mean())


def _moved(
    kind: RouterKind, one: Shape, other: Shape, shards: int, hashes: Hashes
) -> npt.NDArray[np.bool_]:
    before, after = (
        _shards(route(kind, hashes, shape.partitions, shape.k), shape.partitions, shards)
        for shape in (one, other)
    )
    moved: npt.NDArray[np.bool_] = before != after
    return moved


def least_hash(kind: RouterKind, shape: Shape, partition: int) -> int:
    """Return the lowest hash that is routed to a partition."""
    if kind is RouterKind.RANGE:
        return _first_hash(partition, shape.partitions)
    return partition // shape.k + shape.partitions * (partition % shape.k)


def _shards(partition: Hashes, partitions: int, shards: int) -> Hashes:
    return ((partition + 1) * shards - 1) // partitions


def _first_hash(partition: int, partitions: int) -> int:
    """Return the lowest hash that the range router maps to that partition or a later one."""
    return -(-partition * HASHES // partitions)
