"""When a failed delivery is attempted again: exponential back-off with jitter. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue

ATTEMPTS: Final = 8
FIRST: Final = "1s"
MAX: Final = "10m"
"""The attempts and the delays of a policy of which nothing, or only a part, is given."""

GROUP_FIRST: Final = "100ms"
GROUP_MAX: Final = "30s"
"""The delays of a group's consumer without a policy. They are shorter because its attempts are not
stored: they end with the consumer."""

_DOUBLINGS_MAX: Final = 64
"""More doublings than any `max` allows: beyond them only overflows follow."""


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """A retry policy: the number of attempts, and the delays between them.

    The delay after the first failed attempt is at most `first`, and doubles after each further one
    up to `max`. Each delay is shortened at random, by at most one half, so that messages that fail
    together are not all attempted together again. ``attempts=None`` means without end. Delays that
    are not given are those of `DEFAULT_RETRY`.
    """

    attempts: int | None
    first: timedelta
    max: timedelta

    def __init__(
        self,
        attempts: int | None = None,
        *,
        first: timedelta | str = FIRST,
        max: timedelta | str = MAX,
    ) -> None:
        if attempts is not None and not (is_whole(attempts) and attempts >= 1):
            raise InvalidValue("attempts", attempts, "a whole number, 1 or more; None for no end")
        shortest, longest = parse_duration(first, "first"), parse_duration(max, "max")
        if not shortest:
            raise InvalidValue("first", first, "more than 0s")
        if longest < shortest:
            raise InvalidValue("max", max, f"first, {first}, or longer")
        object.__setattr__(self, "attempts", attempts)
        object.__setattr__(self, "first", shortest)
        object.__setattr__(self, "max", longest)

    def delay(self, attempt: int, random: float) -> timedelta:
        """Return the delay after an attempt, counted from 1, failed.

        `random` is a random number from 0 up to, not including, 1.
        """
        first_s, max_s = self.first.total_seconds(), self.max.total_seconds()
        longest_s = min(first_s * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX), max_s)
        return timedelta(seconds=longest_s * (1.0 - random / 2))


DEFAULT_RETRY: Final = Retry(ATTEMPTS)
"""The policy of subscriptions and queues that are created without one."""
