"""Offset specs: where a read starts or ends, and the one parser of their text.

    earliest                 before the oldest message of each partition
    latest                   after the newest message of each partition
    -100                     before the newest 100 messages of the topic
    @2026-01-01T00:00Z       before the first message of that time or later, in each partition
    orders/1.7@42            a position: an offset of one partition

`tailrace.topic.offset_search` finds their offsets in a topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeAlias

from tailrace.errors import InvalidValue
from tailrace.message import Position

NEWEST_MAX: Final = 1_000_000
"""The largest number of newest messages that a spec may ask for."""

FORMS: Final = "earliest, latest, -100, @2026-01-01T00:00Z, or a position such as orders/1.7@42"


class Extreme(Enum):
    """One of the two ends of a topic: before its oldest message, or after its newest."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """Before the first message of each partition that has this timestamp or a later one."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class Newest:
    """Before the newest `count` messages of a topic."""

    count: int


OffsetSpec: TypeAlias = Extreme | AtTime | Newest | Position
"""Where a read starts or ends. A position concerns its partition only."""


def parse_offset_spec(text: str, what: str = "offset", valid: str = FORMS) -> OffsetSpec:
    """Parse an offset spec. Raises `InvalidValue`, which names the value `what`, and lists the
    forms of `valid` unless `text` shows which form was meant."""
    if text in ("earliest", "latest"):
        return Extreme(text)
    if text.startswith("@"):
        time_ms = parse_time(text[1:])
        if time_ms is None:
            raise InvalidValue(what, text, "@ and ISO 8601, such as @2026-01-01T00:00Z")
        return AtTime(time_ms)
    if text.startswith("-") and text[1:].isdecimal() and 1 <= int(text[1:]) <= NEWEST_MAX:
        return Newest(int(text[1:]))
    if "/" not in text:
        raise InvalidValue(what, text, valid)
    try:
        return Position.parse(text)
    except InvalidValue as error:
        raise InvalidValue(what, text, error.valid) from None


def parse_time(text: str) -> int | None:
    """Parse an ISO 8601 time, in UTC unless it names a zone, to milliseconds since 1970.

    Returns None if the text is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max(0, int(time.timestamp() * 1000))
