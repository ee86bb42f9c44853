"""How many records the lanes of a unit may hold."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.delivery.lanes import Lanes


class LaneLimits(NamedTuple):
    """The bounds of the lanes of a unit: a number of records, and their size."""

    records_max: int
    bytes_max: int

    def room(self, lanes: Lanes | None) -> int:
        """Return the number of records that may be delivered besides those in lanes."""
        return self.records_max - (0 if lanes is None else len(lanes))

    def full(self, lanes: Lanes | None) -> bool:
        """True if no record may be added."""
        if lanes is None:
            return False
        return len(lanes) >= self.records_max or lanes.size_bytes >= self.bytes_max

    def crowded(self, lanes: Lanes) -> bool:
        """True if all lanes wait, and the rest of the room is for other keys than theirs."""
        if lanes.in_flight:
            return False
        return len(lanes) >= self.records_max // 2 or lanes.size_bytes >= self.bytes_max

    def blocked(self, lanes: Lanes | None) -> bool:
        """True if nothing can be delivered before a record of a lane is acknowledged."""
        if lanes is None or not self.full(lanes):
            return False
        return lanes.in_flight > 0 or len(lanes) >= self.records_max
