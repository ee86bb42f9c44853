"""Find the records of a batch that a sink refuses, by bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tailrace.pipeline.offsets import Offsets, subtract_offsets
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.pipeline.writer import RefusedRecord


def find_refused(rows: Rows, encode: Callable[[Rows], object]) -> list[RefusedRecord]:
    """Return the records for which `encode` raises a `RowError`, ordered by offset."""
    try:
        encode(rows)
    except RowError as error:
        offsets = rows.records["offset"].to_numpy()
        if offsets[0] == offsets[-1]:
            return [RefusedRecord(int(offsets[0]), error.reason)]
        # Rows of one record stay together.
        middle = np.searchsorted(offsets, offsets[len(offsets) // 2])
        middle = int(middle or np.searchsorted(offsets, offsets[0], "right"))
        halves = range(middle), range(middle, len(offsets))
        return [record for half in halves for record in find_refused(rows.take(half), encode)]
    return []


def accepted_ranges(offsets: Offsets, refused: Sequence[RefusedRecord]) -> list[Offsets]:
    """Return a range of offsets without those of the refused records."""
    return subtract_offsets(offsets, [record.offset for record in refused])


def rows_within(rows: Rows, offsets: Offsets) -> Rows:
    """Return the rows of a range of offsets."""
    first, after = np.searchsorted(rows.records["offset"].to_numpy(), offsets)
    return rows.take(range(int(first), int(after)))


def accepted_rows(rows: Rows, refused: Sequence[RefusedRecord]) -> Rows:
    """Return the rows without those of the refused records."""
    left_out = [record.offset for record in refused]
    is_refused = np.isin(rows.records["offset"].to_numpy(), left_out)
    return rows.take(np.flatnonzero(~is_refused))
