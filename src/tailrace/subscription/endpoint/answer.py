"""What the answer to a delivery means for its message. Pure.

2xx is success. 429 and 503 are retried, not before their ``Retry-After``; 408, 425 and other 5xx
are retried. A redirect is not followed: it is final, as 410 and other 4xx are, except those that
the endpoint retries. All that is no answer at all is retried too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

from tailrace.delivery.outcome import CallOutcome, OutcomeKind

SHOWN_CHARACTERS_MAX: Final = 500
"""The part of an answer's body that is kept with a failed attempt."""

RETRIED_4XX: Final = frozenset((408, 425, 429))
"""The statuses of a client's error that another attempt may mend."""

ASKING_TO_WAIT: Final = frozenset((429, 503))
"""The statuses whose ``Retry-After`` is honoured."""

_SECONDS_MAX: Final = 10**9


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: its status, some headers, and the first bytes of its body."""

    status: int
    body: bytes = b""
    retry_after: str | None = None
    location: str | None = None

    @property
    def succeeded(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Delays:
    """A delay that the policy has for the attempt that failed, and the longest one it has."""

    usual: timedelta
    longest: timedelta


def outcome_of_failure(
    answer: Answer, retried: Collection[int], delays: Delays, now: datetime
) -> CallOutcome:
    """Return the outcome of a delivery whose answer is no success. `retried` are further statuses
    that the endpoint retries."""
    status = answer.status
    text = describe_answer(answer)
    final = 300 <= status < 500 and status not in RETRIED_4XX and status not in retried
    if final:
        return CallOutcome(OutcomeKind.REJECT, text)
    delay: timedelta | None = None
    if status in ASKING_TO_WAIT:
        asked = parse_retry_after(answer.retry_after, now)
        if asked:
            delay = min(max(asked, delays.usual), delays.longest)
    return CallOutcome(OutcomeKind.RETRY, text, delay)


def no_answer(reason: str) -> CallOutcome:
    """Return the outcome of a delivery that was not answered, or not to the end."""
    return CallOutcome(OutcomeKind.RETRY, reason)


def parse_retry_after(text: str | None, now: datetime) -> timedelta | None:
    """Return the delay that a ``Retry-After`` header asks for, in seconds or until a date; None if
    it is missing or not valid."""
    stripped = (text or "").strip()
    if stripped.isascii() and stripped.isdecimal():
        return timedelta(seconds=min(int(stripped[:10]), _SECONDS_MAX))
    try:
        until = parsedate_to_datetime(stripped)
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(timedelta(), until - now)


def describe_answer(answer: Answer) -> str:
    """Return an answer in one line, for people: its status and the beginning of its body."""
    text = f"HTTP {answer.status}"
    if 300 <= answer.status < 400:
        to = f" to {_without_query(answer.location)}" if answer.location else ""
        text += f"{to}: redirects are not followed"
        return text
    body = printable(answer.body.decode("utf-8", "replace"))
    return f"{text}: {body}" if body else text


def printable(text: str) -> str:
    """Return text in one line without control characters, truncated."""
    words = " ".join(text.split())
    kept = words[:SHOWN_CHARACTERS_MAX]
    more = "…" if len(words) > len(kept) else ""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in kept) + more


def _without_query(location: str) -> str:
    try:
        parts = urlsplit(location)
    except ValueError:
        return "another URL"
    host = parts.netloc.rpartition("@")[2]
    return printable(parts._replace(query="", fragment="", netloc=host).geturl())
