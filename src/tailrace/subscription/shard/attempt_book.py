"""The attempts of a shard's messages, as its owner knows them.

Those of dead letters are not kept: there may be many, for weeks. The owner reads them when a letter
is redelivered.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from tailrace.subscription.shard.attempts import Attempts, Begun, Origin, taken_over
from tailrace.subscription.shard.turn import NO_ATTEMPTS


class AttemptBook:
    """The messages with attempts, those that are suspect, and when attempts are due.

    `stored` is what a new owner found, and `ended` are the processes that ended. An attempt that is
    due later waits. `longest_s` is the longest delay of the policy.
    """

    def __init__(
        self,
        stored: Mapping[Origin, Attempts],
        ended: Container[str],
        now: float,
        now_ms: int,
        longest_s: float,
    ) -> None:
        self._attempts: dict[Origin, Attempts] = {}
        self._suspects: set[Origin] = set()
        self._due: dict[Origin, float] = {}
        self.judged: dict[Origin, Attempts] = {}
        """To be stored: the calls alone of earlier owners. Whether one of them ended is decided
        now; a later end of its process says nothing."""
        for origin, found in stored.items():
            self._attempts[origin], suspect = taken_over(found, ended)
            if found.begun is Begun.ALONE:
                judged = self._attempts[origin]
                self.judged[origin] = judged if judged.request else judged.begin(Begun.SHARED)
            if suspect:
                self._suspects.add(origin)
            elif wait_s := found.wait_s(now_ms, longest_s):
                self._due[origin] = now + wait_s

    def __contains__(self, origin: object) -> bool:
        """True if an entry of the message may be stored."""
        return origin in self._attempts

    def has_any(self, first: Origin, offsets: Sequence[int]) -> bool:
        """True if an entry may be stored of one of the messages at these offsets, which are read
        where `first` is and after the same reset."""
        partition, _, reset = first
        if len(self._attempts) > len(offsets):
            return any(Origin(partition, offset, reset) in self._attempts for offset in offsets)
        stream = partition, reset
        known = {each.offset for each in self._attempts if (each.partition, each.reset) == stream}
        return not known.isdisjoint(offsets)

    def get(self, origin: Origin) -> Attempts:
        """Return the attempts of a message."""
        return self._attempts.get(origin, NO_ATTEMPTS)

    def put(self, origin: Origin, attempts: Attempts) -> None:
        """Record attempts, which the next commit stores."""
        self._attempts[origin] = attempts

    def stored(self, origin: Origin, attempts: Attempts) -> None:
        """Record that attempts are stored. Those of a dead letter are forgotten, unless it has
        others by now."""
        if attempts.at_rest and self._attempts.get(origin) is attempts:
            del self._attempts[origin]

    def remove(self, origin: Origin) -> None:
        """Forget a message that is acknowledged."""
        self._attempts.pop(origin, None)
        self._due.pop(origin, None)
        self._suspects.discard(origin)

    def suspect(self, origin: Origin) -> bool:
        """True if the message may have ended its worker, together with others."""
        return origin in self._suspects

    def acquit(self, origin: Origin) -> None:
        """Record that a message was called alone, and its worker did not end."""
        self._suspects.discard(origin)

    def wait(self, origin: Origin, at: float) -> None:
        """Record when the next attempt is due."""
        self._due[origin] = at

    def pop_due(self, origin: Origin) -> float | None:
        """Return, once, when the next attempt is due; None if it is due now."""
        return self._due.pop(origin, None)
