"""Places that every partition has: its two ends, and a moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.topic.moment import offset_at_time, parse_moment


class Extreme(Enum):
    """The ends of a topic: before its oldest message, and after its newest."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Moment:
    """Before the first message of each partition that has this time or a later one."""

    time_ms: int


def parse_place(text: str) -> Extreme | Moment | None:
    """Read ``earliest``, ``latest`` or ``@2026-01-01T00:00Z``; None for what is none of them.

    `InvalidValue` for an ``@`` that no time follows.
    """
    if text in ("earliest", "latest"):
        return Extreme(text)
    if not text.startswith("@"):
        return None
    time_ms = parse_moment(text[1:])
    if time_ms is None:
        raise InvalidValue("time", text, "@ and ISO 8601, such as @2026-01-01T00:00Z")
    return Moment(time_ms)


def offset_at(log: Log, partition: Partition, bounds: Bounds, edge: Extreme | Moment) -> int:
    """The offset of a place in one partition, within what it holds."""
    if edge is Extreme.EARLIEST:
        return bounds.start
    if edge is Extreme.LATEST:
        return bounds.end
    return offset_at_time(log, partition, bounds, edge.time_ms)
