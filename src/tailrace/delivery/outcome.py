"""What the call of a handler means for its message: done, to be attempted again, or rejected.

A handler that returns has succeeded. Any error means another attempt after the delay of the retry
policy, except two by which a handler decides itself: `Reject` and `RetryLater`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from tailrace.duration import parse_duration
from tailrace.error_text import describe_error, describe_trace


class Reject(Exception):
    """Raised by a handler: no further attempt can help. The message is treated as after its last
    attempt."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Exception):
    """Raised by a handler: attempt the message again after this delay, not after that of the retry
    policy. It counts as an attempt."""

    def __init__(self, delay: timedelta | str, reason: str = "") -> None:
        self.delay = parse_duration(delay, "delay")
        super().__init__(delay, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"in {self.delay.total_seconds():g} s"


class OutcomeKind(Enum):
    """What follows a call."""

    SUCCESS = "success"
    FILTERED = "not delivered, because the filter of its consumer does not match"
    RETRY = "another attempt"
    REJECT = "no further attempt"
    LATER = "not called now: it waits, and no attempt is counted"
    LOST = "not known: its shard is given up, and its next owner finds out"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of one call. `error` is for people. `delay` replaces the delay of the retry
    policy, if the handler asked for one. `raised` is the error itself, if one was raised."""

    kind: OutcomeKind
    error: str = ""
    delay: timedelta | None = None
    raised: BaseException | None = field(default=None, compare=False, repr=False)

    @property
    def decided(self) -> bool:
        """True if the handler raised an error to decide about the message."""
        return isinstance(self.raised, Reject | RetryLater)

    @property
    def trace(self) -> str:
        """The traceback of the error, for people; empty if none was raised."""
        return "" if self.raised is None else describe_trace(self.raised)


SUCCESS = CallOutcome(OutcomeKind.SUCCESS)
FILTERED = CallOutcome(OutcomeKind.FILTERED)
LOST = CallOutcome(OutcomeKind.LOST)


def outcome_of(error: BaseException | None) -> CallOutcome:
    """Return the outcome of a call that raised this error, or None."""
    if error is None:
        return SUCCESS
    text = describe_error(error)
    if isinstance(error, Reject):
        return CallOutcome(OutcomeKind.REJECT, text, raised=error)
    if isinstance(error, RetryLater):
        return CallOutcome(OutcomeKind.RETRY, text, error.delay, error)
    return CallOutcome(OutcomeKind.RETRY, text, raised=error)
