"""The error throttle of a shard: it bounds the rate at which messages fail and move to RQ. Pure.

While an endpoint is down, every message that is called fails and moves to RQ with its followers. To
call fewer costs nothing: they wait in MQ, in order. A failure takes a *token*; tokens come back at
the rate that is allowed, a share of the *usual* rate of the shard. While there are too few, no
further message of MQ is called. A success takes no token, so with half of the messages failing,
twice as many calls are made as may fail, and whatever the endpoint can handle is handled.

The usual rate is the average of messages called per second. It must not follow what the throttle
does, or it would fall with it until nothing is called: seconds in which the throttle held messages
back do not count, and seconds with many failures never lower it. It is stored with the counts of
the shard, so that a new owner does not begin with none.

As many calls run at a time as there are tokens for those of them that will probably fail. So calls
become few at once when an endpoint fails, and many at once when it works again.
"""

from __future__ import annotations

from typing import Final

from tailrace.delivery.throttle import PROBES_PER_S, Throttle
from tailrace.subscription.shard.commit.counts import ShardCounts

FORGET: Final = 0.1
"""The weight of the last call in the share of calls that fail."""
RATIO_MIN: Final = 1e-3
"""A smaller share counts as none."""
RISE: Final = 0.13
"""The weight of a second that is above the usual rate: it has half of the effect after 5 s."""
FALL: Final = 0.0023
"""The weight of a second that is below the usual rate: half of the effect after 5 minutes."""
YOUNG_SECONDS: Final = 10
"""Up to this number of seconds, the usual rate is their average."""
WAIT_S_MIN: Final = 0.001


class ErrorThrottle:
    """The throttle of one shard at one owner. For one thread at a time."""

    def __init__(self, policy: Throttle | None) -> None:
        self.usual = 0.0
        """The messages that are usually called in a second; 0 if that is not known."""
        self.waits = False
        """True if a message of MQ waits for a token."""
        self.held_at: float | None = None
        """When a message last had to wait; None if none ever had."""
        self._policy = policy
        self._epoch_ms = 0.0
        self._tokens = 0.0 if policy is None else float(policy.burst)
        self._at = 0.0
        self._ratio = 0.0
        """The share of calls that fail."""
        self._admitted = 0
        """The number of messages of MQ that are prepared or in flight."""
        self._seconds = 0
        self._from: float | None = None
        """The beginning of the second in which calls are counted."""
        self._succeeded = self._failed = 0
        self._held = False

    def follow(self, policy: Throttle | None) -> None:
        """Continue by another policy; None never holds a message back."""
        if policy != self._policy:
            self._tokens = 0.0 if policy is None else float(policy.burst)
            self._policy = policy

    def restore(self, counts: ShardCounts, epoch_ms: float) -> None:
        """Continue with the usual rate that the owner before has stored, if there is one.

        `epoch_ms` is the wall clock's time at the monotonic time 0.
        """
        self._epoch_ms = epoch_ms
        if counts.usual > 0:
            self.usual, self._seconds = counts.usual, YOUNG_SECONDS

    def store(self, counts: ShardCounts) -> None:
        """Write what is stored with the counts of the shard."""
        counts.usual = round(self.usual, 2)
        if self.held_at is not None:
            counts.held_ms = round(self._epoch_ms + self.held_at * 1000)

    def admit(self, now: float) -> bool:
        """True if a further message of MQ may be called."""
        if self._policy is None or not self._ratio:
            return True
        self._refill(now)
        if self._tokens > self._ratio * self._admitted:
            return True
        self.waits = self._held = True
        self.held_at = now
        return False

    def begin(self, messages: int) -> None:
        """Count messages that were admitted."""
        self._admitted += messages

    def succeeded(self, messages: int, now: float) -> None:
        """Record that a call of admitted messages succeeded."""
        self._admitted -= messages
        if self._policy is not None:
            if self._ratio:
                self._ratio *= (1 - FORGET) ** messages
                if self._ratio < RATIO_MIN:
                    self._ratio = 0.0
            self._count(now)
            self._succeeded += messages

    def failed(self, now: float) -> None:
        """Record that an admitted message failed."""
        self._admitted -= 1
        if self._policy is not None:
            self._refill(now)
            self._tokens = max(self._tokens - 1, -1.0)
            self._ratio += (1 - self._ratio) * FORGET
            self._count(now)
            self._failed += 1

    def withdraw(self, messages: int) -> None:
        """Record that admitted messages were not called after all, or that their call tells nothing
        about the endpoint."""
        self._admitted -= messages

    @property
    def due(self) -> float | None:
        """When the message that waits may be called; None if none waits."""
        if not self.waits or self._policy is None:
            return None
        missing = self._ratio * self._admitted - self._tokens
        return self._at + max(WAIT_S_MIN, missing / self._rate(self._policy) + WAIT_S_MIN)

    def _rate(self, policy: Throttle) -> float:
        """Return the number of messages that may fail in a second."""
        return max(PROBES_PER_S, policy.share * self.usual)

    def _refill(self, now: float) -> None:
        assert self._policy is not None
        rate = self._rate(self._policy)
        most = max(self._policy.burst, rate)
        self._tokens = min(most, self._tokens + max(0.0, now - self._at) * rate)
        self._at = now

    def _count(self, now: float) -> None:
        """Begin another second if the last one is over."""
        if self._from is None or now >= self._from + 1:
            self._learn()
            self._from = now
            self._succeeded = self._failed = 0
            self._held = False

    def _learn(self) -> None:
        """Let the second that is over count for the usual rate.

        Failures count as far as there are as many successes: calls that are refused at once can be
        much faster than those of an endpoint that works.
        """
        assert self._policy is not None
        calls = self._succeeded + self._failed
        rate = self._succeeded + min(self._succeeded, self._failed)
        healthy = self._failed <= self._policy.share * calls
        rises = rate > self.usual
        if self._held or not rate or not (healthy or rises):
            return
        self._seconds += 1
        weight = RISE if rises else FALL
        if self._seconds <= YOUNG_SECONDS:
            weight = max(weight, 1 / self._seconds)
        self.usual += (rate - self.usual) * weight
