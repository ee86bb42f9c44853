"""The rows of a batch that cannot be delivered in their turn.

An earlier record of their key is in a lane, or the record itself was in a lane when the batch was
fed, because the batch is read again. The rows are searched by column, once for each batch and once
for each new lane, so that the others are delivered as fast as if there were no lanes.
"""

from __future__ import annotations

from collections import deque

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.lanes import Lanes


class BlockedRows:
    """The blocked rows of a batch that was fed beside these lanes. For one thread at a time."""

    def __init__(self, batch: FetchedBatch, lanes: Lanes | None) -> None:
        self.again: frozenset[int] = frozenset()
        """The rows whose records are in lanes, or were."""
        if lanes is not None and batch.start <= lanes.highest:
            offsets = enumerate(batch.offsets)
            self.again = frozenset(row for row, offset in offsets if offset in lanes.entries)
        self._batch = batch
        self._rows = deque(sorted(self.again))
        self._searched = False

    def first(self, lanes: Lanes | None, start: int) -> int:
        """Return the first blocked row from `start`, or the number of rows if there is none.

        `start` never decreases.
        """
        if lanes is not None:
            new = lanes.pop_new_keys()
            if not self._searched:
                self._searched, new = True, lanes.keys
            if new:
                self._rows = deque(sorted({*self._rows, *self._batch.rows_of(new, start)}))
        while self._rows and (self._rows[0] < start or not self._blocks(self._rows[0], lanes)):
            self._rows.popleft()
        return self._rows[0] if self._rows else len(self._batch)

    def _blocks(self, row: int, lanes: Lanes | None) -> bool:
        return row in self.again or (lanes is not None and self._batch.keys[row] in lanes)
