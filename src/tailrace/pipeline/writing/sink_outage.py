"""An outage of a sink: since when, why, and when the writer tries again.

A writer waits in the same way for executors of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tailrace.clock import Clock
from tailrace.delivery.retry import Retry
from tailrace.pipeline.writer_status import WaitsFor

RETRY: Final = Retry(first="500ms", max="30s")
"""When a writer tries its sink again. How long it waits at all is up to the run."""


@dataclass(frozen=True, slots=True)
class SinkOutage:
    """A sink that cannot be reached. `tries` have failed, the last one because of `reason`.

    Times in milliseconds are for people, times in seconds are those of the monotonic clock.
    """

    reason: str
    tries: int
    since_ms: int
    since_s: float
    next_try_ms: int
    next_try_s: float
    waits_for: WaitsFor = WaitsFor.SINK

    def is_due(self, now_s: float) -> bool:
        """True if it is time for the next try."""
        return now_s >= self.next_try_s


def after_failed_try(
    before: SinkOutage | None,
    reason: str,
    clock: Clock,
    random: float,
    wait_s: float | None,
    waits_for: WaitsFor = WaitsFor.SINK,
) -> SinkOutage:
    """Return the outage after one more failed try; `before` is None at the first one.

    `random`, a number from 0 to 1, shortens the delay. The next try is not later than `wait_s`
    after the begin of the outage.
    """
    now_ms, now_s = clock.now_ms(), clock.monotonic()
    tries = 1 if before is None else before.tries + 1
    since_ms, since_s = (now_ms, now_s) if before is None else (before.since_ms, before.since_s)
    delay = RETRY.delay(tries, random)
    if wait_s is not None:
        delay = max(timedelta(), min(delay, timedelta(seconds=since_s + wait_s - now_s)))
    return SinkOutage(
        reason=reason,
        tries=tries,
        since_ms=since_ms,
        since_s=since_s,
        next_try_ms=now_ms + delay // timedelta(milliseconds=1),
        next_try_s=now_s + delay.total_seconds(),
        waits_for=waits_for,
    )


def is_over(outage: SinkOutage, now_s: float, wait_s: float | None) -> bool:
    """True if a writer that waits at most `wait_s` has waited long enough."""
    return wait_s is not None and now_s - outage.since_s >= wait_s
