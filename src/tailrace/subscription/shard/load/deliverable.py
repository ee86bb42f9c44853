"""The messages of a shard that nothing holds back but the throttle. Pure.

They are called in the order in which they came. Messages of RQ and DLQ, whose failure moves nothing
to RQ, pass those of MQ that wait for the throttle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tailrace.subscription.shard.load.throttle import ErrorThrottle
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import Turn


class Deliverable:
    """The messages of one shard. For one thread at a time."""

    def __init__(self, throttle: ErrorThrottle) -> None:
        self._throttle = throttle
        self._fresh: deque[tuple[int, Turn]] = deque()
        """Those of MQ, numbered in the order in which they came."""
        self._others: deque[tuple[int, Turn]] = deque()
        self._came = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._others)

    def add(self, turns: Iterable[Turn]) -> None:
        """Add messages."""
        for turn in turns:
            self._came += 1
            chosen = self._fresh if turn.queue is Queue.MQ else self._others
            chosen.append((self._came, turn))

    def first(self, now: float) -> Turn | None:
        """Return the first message that may be called; None if there is none now."""
        fresh, others = self._fresh, self._others
        oldest = fresh and not (others and others[0][0] < fresh[0][0])
        if oldest and self._throttle.admit(now):
            return fresh[0][1]
        return others[0][1] if others else None

    def remove(self, turn: Turn) -> None:
        """Remove the message that is the first."""
        chosen = self._fresh if turn.queue is Queue.MQ else self._others
        assert chosen[0][1] is turn
        chosen.popleft()
