"""Where a group begins, or is sent by a seek, and what that means for each stream of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tailrace.amount import is_whole
from tailrace.backend.contract import Log
from tailrace.errors import InvalidValue, OutOfRange
from tailrace.message import Partition, Position
from tailrace.topic.composite import Definition
from tailrace.topic.edge import Extreme, Moment, offset_at, parse_place
from tailrace.topic.lineage import Stream, followers
from tailrace.topic.open_streams import held_streams

Start: TypeAlias = Extreme | Moment | tuple[Position, ...]
"""Everywhere the same place, or positions: at most one in each partition, and one at least."""

StartLike: TypeAlias = Start | str | datetime | Position | Mapping[Partition | str, int]
"""What people write for a `Start`."""

_TEXT_FORMS: Final = "earliest, latest, @2026-01-01T00:00Z, or a position such as orders/1.7@42"
_FORMS: Final = (
    "'earliest', 'latest', an aware datetime, '@2026-01-01T00:00Z', a position such as"
    " 'orders/1.7@42', or offsets by partition: {'orders/1.7': 42}"
)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Placement(NamedTuple):
    """The low-water marks that a start or a seek gives to the streams of a topic.

    `whole`: to all of them, those at 0 not being listed; otherwise the others stay as they are.
    `skipped` are single offsets that count as acknowledged, in streams that stay as they are else.
    """

    whole: bool
    marks: Mapping[Stream, int]
    skipped: Mapping[Stream, int] = MappingProxyType({})


FROM_ZERO: Final = Placement(True, {})
"""Every stream from its first record on."""


def parse_start(value: StartLike, what: str = "start") -> Start:
    """Read what a person wrote; `InvalidValue`, which calls it `what`, lists the forms."""
    try:
        return _parse(value)
    except InvalidValue as error:
        raise InvalidValue(what, value, error.valid) from None


def _parse(value: StartLike) -> Start:
    match value:
        case Extreme() | Moment():
            return value
        case Position():
            return (value,)
        case datetime() if value.tzinfo is not None:
            return Moment((value - _EPOCH) // timedelta(milliseconds=1))
        case str() if value.strip():
            return _parse_text(value.strip())
        case Mapping() if value:
            return _in_order([_position(where, at) for where, at in value.items()])
        case tuple() if positions := [each for each in value if isinstance(each, Position)]:
            return _in_order(positions)
    raise InvalidValue("start", value, _FORMS)


def format_start(start: Start) -> str:
    """A start in writing, which `parse_start` reads."""
    match start:
        case Extreme():
            return start.value
        case Moment():
            moment = _EPOCH + timedelta(milliseconds=start.time_ms)
            return f"@{moment.isoformat(timespec='milliseconds')}"
    return " ".join(map(str, start))


def _parse_text(text: str) -> Start:
    place = parse_place(text)
    if place is not None:
        return place
    if "@" not in text:
        raise InvalidValue("start", text, _TEXT_FORMS)
    return _in_order([Position.parse(position) for position in text.split()])


def _position(where: Partition | str, offset: int) -> Position:
    partition = Partition.parse(where) if isinstance(where, str) else where
    if not isinstance(partition, Partition) or not is_whole(offset):
        raise InvalidValue("start", {where: offset}, _FORMS)
    return Position(*partition, offset)


def _in_order(positions: list[Position]) -> tuple[Position, ...]:
    if len({position[:3] for position in positions}) != len(positions):
        raise InvalidValue("start", " ".join(map(str, positions)), "one position in a partition")
    return tuple(sorted(positions))


def place_start(log: Log, topic: str, definition: Definition, start: Start) -> Placement:
    """Where a group that is new begins in a topic.

    At positions, it begins in those partitions there, in all others of their storage topics and
    later ones at 0, and it reads nothing of storage topics before.
    """
    if not isinstance(start, tuple):
        return _place_everywhere(log, topic, definition, start)
    named = _named(log, topic, definition, start)
    first = min((storage for storage, _ in named), default=0)
    held = held_streams(log, topic, definition)
    skipped = {stream: bounds.end for stream, bounds in held.items() if stream[0] < first}
    return Placement(True, skipped | named)


def place_seek(log: Log, topic: str, definition: Definition, start: Start) -> Placement:
    """Where a seek sends a group in a topic.

    By positions it sends those partitions there and whatever follows them to 0. All others stay as
    they are, so a partition still waits for those that it follows.
    """
    if not isinstance(start, tuple):
        return _place_everywhere(log, topic, definition, start)
    named = _named(log, topic, definition, start)
    reached = followers(definition.router, definition.storage[: definition.pointer + 1], named)
    return Placement(False, dict.fromkeys(reached, 0) | named)


def _place_everywhere(
    log: Log, topic: str, definition: Definition, edge: Extreme | Moment
) -> Placement:
    if edge is Extreme.EARLIEST:
        return FROM_ZERO
    held = held_streams(log, topic, definition)
    marks = {
        stream: offset_at(log, Partition(topic, *stream), bounds, edge)
        for stream, bounds in held.items()
    }
    return Placement(True, marks)


def _named(
    log: Log, topic: str, definition: Definition, positions: tuple[Position, ...]
) -> dict[Stream, int]:
    """The marks that positions say, if the partitions are there and hold those offsets."""
    named: dict[Stream, int] = {}
    for position in positions:
        if position.topic == topic:
            where = definition.check_partition(Partition(*position[:3]))
            start, end, _ = log.bounds(where)
            if not start <= position.offset <= end:
                raise OutOfRange(str(where), position.offset, start, end)
            named[where.storage, where.number] = position.offset
    return named
