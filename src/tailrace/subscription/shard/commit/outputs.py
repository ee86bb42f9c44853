"""The messages that a handler pushes by ``delivery.tx``: stored in the commit that acknowledges the
message it was called with, or not at all."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.log.record import OVERHEAD_BYTES, Record


class PushedRecord(NamedTuple):
    """A record to append to a topic, which is routed when it is stored."""

    topic: str
    record: Record

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record."""
        return OVERHEAD_BYTES + len(self.record.key or b"") + len(self.record.value)
