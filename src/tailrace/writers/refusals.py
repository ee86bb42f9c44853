"""Finding the records that a sink cannot take among many that it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import RowError, Rows
from tailrace.pipeline.writer import Failure


def refused(rows: Rows, encode: Callable[[Rows], object]) -> list[Failure]:
    """Every record that makes `encode` raise a `RowError`, found by halving, in order."""
    try:
        encode(rows)
    except RowError as error:
        offsets = rows.records["offset"].to_numpy()
        if offsets[0] == offsets[-1]:
            return [Failure(int(offsets[0]), error.reason)]
        # Rows of one record stay together.
        middle = np.searchsorted(offsets, offsets[len(offsets) // 2])
        middle = int(middle or np.searchsorted(offsets, offsets[0], "right"))
        halves = range(middle), range(middle, len(offsets))
        return [failure for half in halves for failure in refused(rows.take(half), encode)]
    return []


def between(offsets: Offsets, failures: Sequence[Failure]) -> Iterator[Offsets]:
    """A range without the offsets of failures, which are in order."""
    start = offsets.start
    for failure in failures:
        if start < failure.offset:
            yield Offsets(start, failure.offset)
        start = failure.offset + 1
    if start < offsets.end:
        yield Offsets(start, offsets.end)


def within(rows: Rows, offsets: Offsets) -> Rows:
    """The rows of a range."""
    first, after = np.searchsorted(rows.records["offset"].to_numpy(), offsets)
    return rows.take(range(int(first), int(after)))


def without(rows: Rows, failures: Sequence[Failure]) -> Rows:
    """The rows of all other records."""
    gone = [failure.offset for failure in failures]
    return rows.take(np.flatnonzero(~np.isin(rows.records["offset"].to_numpy(), gone)).tolist())
