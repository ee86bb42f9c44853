"""Ranges of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Offsets(NamedTuple):
    """The offsets from `start` to `end`, without `end`."""

    start: int
    end: int


def merge_ranges(ranges: Iterable[Offsets]) -> list[Offsets]:
    """Return the fewest ranges that cover the same offsets, in order."""
    merged: list[Offsets] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1].end:
            merged[-1] = Offsets(merged[-1].start, max(end, merged[-1].end))
        elif start < end:
            merged.append(Offsets(start, end))
    return merged


def subtract_offsets(offsets: Offsets, removed: Sequence[int]) -> list[Offsets]:
    """Return the range without some single offsets, as ranges in order."""
    left = []
    at = offsets.start
    for offset in sorted(set(removed)):
        if at < offset:
            left.append(Offsets(at, offset))
        at = max(at, offset + 1)
    if at < offsets.end:
        left.append(Offsets(at, offsets.end))
    return left


def subtract_ranges(offsets: Offsets, removed: Iterable[Offsets]) -> list[Offsets]:
    """Return the range without some other ranges, as ranges in order."""
    left = []
    at = offsets.start
    for start, end in merge_ranges(removed):
        if at < min(start, offsets.end):
            left.append(Offsets(at, min(start, offsets.end)))
        at = max(at, end)
    if at < offsets.end:
        left.append(Offsets(at, offsets.end))
    return left


def intersect_ranges(ranges: Sequence[Offsets], bounds: Offsets) -> list[Offsets]:
    """Return the parts of the ranges that lie within `bounds`."""
    cut = (Offsets(max(start, bounds.start), min(end, bounds.end)) for start, end in ranges)
    return [each for each in cut if each.start < each.end]
