"""The dead-letter breaker of a shard: dead letters that are too many trip it. Pure.

A bad deploy may fail every message. Without a breaker the whole topic would become dead letters.

Only messages that were called count: those that follow a dead letter of their key tell nothing
about the endpoint. Of each key one dead letter counts, as long as it is within the window: under
`continue` a single customer could have thousands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, NamedTuple

from tailrace.delivery.breaker import Breaker

STEPS: Final = 10
"""The number of parts of the window in which successes are counted."""
KEYS_MAX: Final = 10_000
"""The most dead letters that are remembered."""


class LastLetter(NamedTuple):
    """The last dead letter of a key: its time, and the number of the run that it was counted in."""

    at: float
    run: int


class DeadLetterBreaker:
    """The breaker of one shard at one owner. For one thread at a time."""

    def __init__(self, policy: Breaker | None) -> None:
        self.tripped = ""
        """Why the subscription has to pause; empty if it has not to."""
        self._policy = policy
        self._run = self._length = 0
        self._dead: dict[Hashable, LastLetter] = {}
        """The dead letters of the window by key, the oldest first."""
        self._succeeded: deque[list[float]] = deque()
        """The beginning of each part of the window, and the number of successes in it."""

    def follow(self, policy: Breaker | None) -> None:
        """Continue by another policy; None never trips."""
        if policy != self._policy:
            self._policy = policy
            self.reset()

    def reset(self) -> None:
        """Begin anew: the subscription was paused."""
        self.tripped = ""
        self._length = 0
        self._dead.clear()
        self._succeeded.clear()

    def succeeded(self, messages: int, now: float) -> None:
        """Count messages that a handler has handled."""
        if self._policy is None:
            return
        if self._length:
            self._length = 0
            self._run += 1
        parts = self._succeeded
        if not parts or now >= parts[-1][0] + self._policy.window.total_seconds() / STEPS:
            self._forget(now)
            parts.append([now, 0])
        parts[-1][1] += messages

    def died(self, key: Hashable, error: str, now: float) -> None:
        """Count a message that was called and becomes a dead letter."""
        policy = self._policy
        if policy is None or self.tripped:
            return
        before = self._dead.pop(key, None)
        self._dead[key] = LastLetter(now, self._run)
        self._length += before is None or before.run != self._run
        self._forget(now)
        dead, succeeded = len(self._dead), int(sum(part[1] for part in self._succeeded))
        last = f"last error: {next(iter(error.splitlines()), '')}"
        if self._length >= policy.run:
            self.tripped = f"{self._length:,} messages in a row became dead letters; {last}"
        elif dead >= policy.run and dead >= policy.ratio * (dead + succeeded):
            ended = dead + succeeded
            self.tripped = f"{dead:,} of the last {ended:,} messages became dead letters; {last}"

    def _forget(self, now: float) -> None:
        """Forget what was before the window."""
        assert self._policy is not None
        since = now - self._policy.window.total_seconds()
        while self._succeeded and self._succeeded[0][0] <= since:
            self._succeeded.popleft()
        while self._dead:
            key, first = next(iter(self._dead.items()))
            if first.at > since and len(self._dead) <= KEYS_MAX:
                return
            del self._dead[key]
