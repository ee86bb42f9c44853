"""What a change of the number of partitions means, before it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from tailrace.amount import format_amount
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Shape, consistent, follows
from tailrace.topic.router import RouterKind

_SHARDS_MAX = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """A scaling that may be made, in values and, as `str` of it, in words.

    `storage` is the index of the storage topic that will take pushes; it is the present one when
    the topic already has that many partitions, and then there is nothing to do. `waiting` counts
    offsets of the present one, which consumers read before those of the new one; gaps in them count
    too. `shards` are the numbers of shards, up to 64, with which no key changes its shard.
    """

    topic: str
    before: Shape
    after: Shape
    storage: int
    waiting: int
    shards: tuple[int, ...]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def plan_scale(
    topic: str, definition: Definition, partitions: int, any_count: bool, waiting: int
) -> Plan:
    """The plan for a topic to have that many partitions."""
    before = definition.shape
    if partitions == before.partitions:
        line = f"{topic} has {format_amount(partitions, 'partition')}: nothing to do"
        return Plan(topic, before, before, definition.pointer, 0, (), (line,))
    scaled = definition.scaled(partitions, any_count=any_count)
    after, storage = scaled.shape, scaled.pointer
    common = gcd(before.partitions, after.partitions)
    shards = tuple(
        count
        for count in range(1, min(common, _SHARDS_MAX) + 1)
        if common % count == 0 and consistent(scaled.router, (before, after), count)
    )
    lines = [
        f"{topic} {before.partitions} -> {format_amount(after.partitions, 'partition')}: "
        f"{_bases(scaled, before)}; "
        f"{_successors(scaled, before)}",
        *(
            f"  {name:<7}{text}"
            for name, text in _consequences(definition, scaled, shards, waiting)
        ),
    ]
    return Plan(topic, before, after, storage, waiting, shards, tuple(lines))


def _bases(scaled: Definition, before: Shape) -> str:
    """What becomes of the shape, in one clause."""
    after = scaled.shape
    if scaled.router is RouterKind.RANGE:
        return "router range"
    base = f"base {before.base}" + (
        " unchanged" if before.base == after.base else f" -> {after.base}"
    )
    return f"{base}, K {before.k} -> {after.k}"


def _successors(scaled: Definition, before: Shape) -> str:
    """Which partitions follow which, in one clause."""
    after = scaled.shape
    if scaled.router is RouterKind.SHARD_CONSISTENT and before.base == after.base and before.k == 1:
        block = [f"{after.k}p", *(f"{after.k}p+{i}" for i in range(1, after.k))]
        shown = ", ".join(block if after.k <= 4 else [block[0], "...", block[-1]])
        return f"partition p is followed by {shown}"
    previous = scaled.storage[scaled.pointer - 1]
    counts = {
        len(follows(scaled.router, previous, after, number)) for number in range(after.partitions)
    }
    low, high = min(counts), max(counts)
    return f"each partition follows {high if low == high else f'{low} to {high}'} of the earlier"


def _consequences(
    now: Definition, scaled: Definition, shards: tuple[int, ...], waiting: int
) -> Iterator[tuple[str, str]]:
    """What is worth knowing before it is done, each with its name."""
    if len(shards) == 1:
        yield "shards", "keys change their shard wherever there is more than one"
    else:
        counts = ", ".join(map(str, shards[:-1]))
        yield "shards", f"no key changes its shard where there are {counts} or {shards[-1]}"
    wait = f"up to {format_amount(waiting, 'message')} of storage {now.pointer}"
    yield "wait", f"{wait} to read before those of storage {scaled.pointer}"
    for storage in range(now.pointer + 1, scaled.pointer):
        yield "skip", f"storage {storage}, added and never switched to, stays empty"
    yield "undo", f"none; scaling back adds storage {scaled.pointer + 1}"
