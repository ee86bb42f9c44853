"""The liveness of other processes, judged by the heartbeats of their holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailrace.clock import Clock
from tailrace.group.protocol.events import Gone, Stalled
from tailrace.group.store.presence import HOLDS

_GAPS_MIN: Final = 4
"""The smallest number of gaps between probes in which a whole lease can pass."""


@dataclass(slots=True)
class _ProbedProcess:
    """The last probe of a process: its heartbeats, for how long they have not changed, and when the
    probe ended. `failed`: a later probe failed."""

    beats: int
    unchanged_s: float
    probed_at: float
    failed: bool = False


class Liveness:
    """Probes the heartbeats of other processes. For one thread.

    A process whose name nobody holds is dead. A process whose heartbeats do not change for a whole
    lease is stalled. Only the time between the end of one probe and the start of the next counts:
    a probe may block or fail. Each gap counts for at most a part of the lease, because this process
    may have been stopped together with the other.
    """

    def __init__(self, beats: Callable[[str], int | None], clock: Clock, lease_s: float) -> None:
        self._beats = beats
        self._clock = clock
        self._lease_s = lease_s
        self._probed: dict[str, _ProbedProcess] = {}

    def probe(self, process: str) -> Gone | Stalled | None:
        """Return the failure of a process; None if it is alive. Raises the backend's errors."""
        begun = self._clock.monotonic()
        self._forget_old(begun)
        last = self._probed.get(process)
        try:
            beats = self._beats(HOLDS + process)
        except BaseException:
            if last is not None:
                last.failed = True
            raise
        self._probed.pop(process, None)
        if beats is None:
            return Gone(process)
        unchanged_s = 0.0
        if last is not None and last.beats == beats:
            gap_s = 0.0 if last.failed else begun - last.probed_at
            unchanged_s = last.unchanged_s + min(gap_s, self._lease_s / _GAPS_MIN)
        self._probed[process] = _ProbedProcess(beats, unchanged_s, self._clock.monotonic())
        return Stalled(process, begun) if unchanged_s >= self._lease_s else None

    def _forget_old(self, now: float) -> None:
        """Forget processes that are no longer probed. They are in the order of their probes."""
        for process, last in list(self._probed.items()):
            if now - last.probed_at < 2 * self._lease_s:
                return
            del self._probed[process]
