"""Agreement: a key's partitions in the topic, in RQ and in DLQ belong to one shard.

Otherwise two owners would decide about one key, and neither would know what the other holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tailrace.amount import format_amount
from tailrace.errors import InvalidValue
from tailrace.subscription.layout.assignment import Assignment
from tailrace.topic.lineage import Shape
from tailrace.topic.router import RouterKind, hash_key, route

_EXAMPLES: Final = 100_000
"""The number of keys that are tried for an example."""


class NamedShape(NamedTuple):
    """The shape of a storage topic, and its name for people."""

    name: str
    shape: Shape


class Disagreement(NamedTuple):
    """Two storage topics in which some keys have different shards. `example` is such a key; None
    if none was found among many."""

    one: NamedShape
    other: NamedShape
    example: str | None


def find_disagreement(
    strategy: Assignment, kind: RouterKind, shapes: Sequence[NamedShape], shards: int
) -> Disagreement | None:
    """Return two of the storage topics that disagree about a key; None if all agree.

    The last one is compared with each other: to agree is transitive.
    """
    last = shapes[-1]
    for other in shapes[:-1]:
        if not strategy.consistent(kind, (other.shape, last.shape), shards):
            example = _example(strategy, kind, other.shape, last.shape, shards)
            return Disagreement(other, last, example)
    return None


def check_agreement(
    strategy: Assignment, kind: RouterKind, shapes: Sequence[NamedShape], shards: int
) -> None:
    """Raise `InvalidValue`, with an example, unless every key has one shard in all shapes."""
    found = find_disagreement(strategy, kind, shapes, shards)
    if found is None:
        return
    one, other, example = found
    key = "some keys"
    if example is not None:
        numbers = [key_shard(strategy, kind, each.shape, shards, example) for each in (one, other)]
        key = f"key {example!r}: shard {numbers[0]} in {one.name}, {numbers[1]} in {other.name}"
    valid = valid_shards(strategy, kind, [each.shape for each in shapes])
    raise InvalidValue(
        "shards",
        shards,
        f"a number for which all storage topics agree, for example {', '.join(map(str, valid))}",
        problem=f"with {format_amount(shards, 'shard')} {one.name} and {other.name} disagree about"
        f" {key}",
    )


def key_shard(strategy: Assignment, kind: RouterKind, shape: Shape, shards: int, key: str) -> int:
    """Return the shard of a key in a storage topic."""
    partition = route(kind, hash_key(key.encode()), shape.partitions, shape.k)
    return strategy.owner(partition, shards, shape.partitions)


def valid_shards(
    strategy: Assignment, kind: RouterKind, shapes: Sequence[Shape], count: int = 8
) -> list[int]:
    """Return numbers of shards that divide the newest storage topic and for which all agree, the
    largest first, at most `count`."""
    newest = shapes[-1].partitions
    divisors = (number for number in range(newest, 0, -1) if newest % number == 0)
    found = []
    for number in divisors:
        pairs = ((shape, shapes[-1]) for shape in shapes[:-1])
        if all(strategy.consistent(kind, pair, number) for pair in pairs):
            found.append(number)
            if len(found) == count:
                break
    return found


def _example(
    strategy: Assignment, kind: RouterKind, one: Shape, other: Shape, shards: int
) -> str | None:
    for number in range(_EXAMPLES):
        key = f"c{number}"
        owners = {key_shard(strategy, kind, shape, shards, key) for shape in (one, other)}
        if len(owners) > 1:
            return key
    return None
