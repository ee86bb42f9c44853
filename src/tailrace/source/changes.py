"""What has changed in the units that are read, for whoever tells others of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.source.unit_status import UnitStatus


@dataclass(slots=True)
class Changes:
    """What has changed since the caller asked last."""

    statuses: dict[str, UnitStatus] = field(default_factory=dict)
    """Owned units, with what is left to do in each now."""
    reported: set[str] = field(default_factory=set)
    """Units of children that were reported, and that this reading does not own."""
    removed: set[str] = field(default_factory=set)
    """Units that have no split any more."""
    lost: set[str] = field(default_factory=set)
    """Units that a newer owner has."""

    def __bool__(self) -> bool:
        return bool(self.statuses or self.reported or self.removed or self.lost)
