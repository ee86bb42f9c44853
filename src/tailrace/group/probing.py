"""Whether other processes live, by the beats of their holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailrace.clock import Clock
from tailrace.group.events import Gone, Stalled

HOLDS: Final = "process/"
"""A process holds this and its name for as long as it takes part in groups."""

_GAPS_MIN: Final = 4
"""A lease is counted out in so many gaps between looks, or more."""


@dataclass(slots=True)
class _Seen:
    """The beats of a process as last seen, how long they stood still, and when that was.

    `failed`: when a look failed after that.
    """

    beats: int
    still_s: float
    looked_at: float
    failed: bool = False


class Probing:
    """Looks again and again at the beats of other processes. For one thread.

    A process that nobody holds the name of is dead. One whose beats stand still for a whole lease
    is stalled. Only time between the end of one look and the beginning of the next counts, not
    that in which a look blocked or failed; and of that between two looks at most a part of the
    lease, for whoever looks may have been stopped itself, together with the one that it looks at.
    """

    def __init__(self, beats: Callable[[str], int | None], clock: Clock, lease_s: float) -> None:
        self._beats = beats
        self._clock = clock
        self._lease_s = lease_s
        self._seen: dict[str, _Seen] = {}

    def look(self, process: str) -> Gone | Stalled | None:
        """What is wrong with a process; None when nothing is. Raises what the backend raises."""
        begun = self._clock.monotonic()
        self._forget_those_of_old(begun)
        seen = self._seen.get(process)
        try:
            beats = self._beats(HOLDS + process)
        except BaseException:
            if seen is not None:
                seen.failed = True
            raise
        self._seen.pop(process, None)
        if beats is None:
            return Gone(process)
        still_s = 0.0
        if seen is not None and seen.beats == beats:
            gap_s = 0.0 if seen.failed else begun - seen.looked_at
            still_s = seen.still_s + min(gap_s, self._lease_s / _GAPS_MIN)
        self._seen[process] = _Seen(beats, still_s, self._clock.monotonic())
        return Stalled(process, begun) if still_s >= self._lease_s else None

    def _forget_those_of_old(self, now: float) -> None:
        """Nobody may ask for them again, and they are in the order of the looks."""
        for process, seen in list(self._seen.items()):
            if now - seen.looked_at < 2 * self._lease_s:
                return
            del self._seen[process]
