"""Ranges of offsets, and what can be done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Offsets(NamedTuple):
    """The offsets from `start` up to, not including, `end`."""

    start: int
    end: int


def united(ranges: Iterable[Offsets]) -> list[Offsets]:
    """Ranges in order, apart from each other, that cover the same offsets."""
    merged: list[Offsets] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1].end:
            merged[-1] = Offsets(merged[-1].start, max(end, merged[-1].end))
        elif start < end:
            merged.append(Offsets(start, end))
    return merged


def without(offsets: Offsets, taken: Sequence[int]) -> list[Offsets]:
    """A range less some single offsets."""
    left = []
    at = offsets.start
    for offset in sorted(set(taken)):
        if at < offset:
            left.append(Offsets(at, offset))
        at = max(at, offset + 1)
    if at < offsets.end:
        left.append(Offsets(at, offsets.end))
    return left


def within(ranges: Sequence[Offsets], bounds: Offsets) -> list[Offsets]:
    """What ranges have in common with one."""
    cut = (Offsets(max(start, bounds.start), min(end, bounds.end)) for start, end in ranges)
    return [each for each in cut if each.start < each.end]
