"""What is left to do in a unit of a source."""

from __future__ import annotations

from enum import Enum
from typing import Final


class UnitStatus(Enum):
    """What is left to do in a unit: a split, or all splits that are bound together."""

    READING = "reading"
    """A split is being read."""
    WAITING = "waiting"
    """No split is being read; some wait for others to finish."""
    READ = "read"
    """Everything within the `Until` of the task was read. Splits may wait for one that has ended
    without being finished."""
    FINISHED = "finished"
    """Every split is finished."""

    @property
    def is_load(self) -> bool:
        """True if there is something left to read."""
        return self in LOADS


LOADS: Final = (UnitStatus.READING, UnitStatus.WAITING)
