"""What filters a batch of messages."""

from __future__ import annotations

from typing import Protocol

from tailrace.delivery.fetched import FetchedBatch


class BatchFilter(Protocol):
    """Decides which messages of a batch are delivered. Pure: the same for the same messages."""

    def matching(self, batch: FetchedBatch) -> FetchedBatch:
        """Return the messages of a batch that match, the others left out as gaps; the same batch if
        all match."""
