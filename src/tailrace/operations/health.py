"""The state of a consumer as a whole: of a group, or of a subscription."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Generic, TypeVar

S = TypeVar("S", bound=StrEnum)

_WELL: Final = frozenset({"CAUGHT UP", "IDLE", "TOPIC DELETED"})


@dataclass(frozen=True, slots=True)
class Health(Generic[S]):
    """The state of a consumer, the reason in words, and since when, if that is known."""

    state: S
    why: str
    since: datetime | None = None

    @property
    def text(self) -> str:
        """The state and the reason in one line."""
        since = "" if self.since is None else f" since {time_text(self.since)}"
        return f"{self.state}{since}: {self.why}"

    @property
    def waits(self) -> bool:
        """True if messages wait."""
        return self.state not in _WELL


def time_text(time: datetime) -> str:
    """Return a time in UTC: ``2026-01-31 12:00:00Z``."""
    return f"{time:%Y-%m-%d %H:%M:%S}Z"
