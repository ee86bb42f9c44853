"""The start of a group or the target of a seek, and the resulting mark of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tailrace.amount import is_whole
from tailrace.backend.contract import Log
from tailrace.clock import utc_time
from tailrace.errors import InvalidValue, OutOfRange
from tailrace.message import Partition, Position
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Stream, followers
from tailrace.topic.offset_search import offset_at
from tailrace.topic.offset_spec import AtTime, Extreme, Newest, parse_offset_spec
from tailrace.topic.open_streams import held_streams

Start: TypeAlias = Extreme | AtTime | tuple[Position, ...]
"""One offset spec for every partition, or one or more positions in different partitions."""

StartLike: TypeAlias = Start | str | datetime | Position | Mapping[Partition | str, int]
"""The forms in which users give a `Start`."""

_TEXT_FORMS: Final = "earliest, latest, @2026-01-01T00:00Z, or a position such as orders/1.7@42"
_FORMS: Final = (
    "'earliest', 'latest', an aware datetime, '@2026-01-01T00:00Z', a position such as"
    " 'orders/1.7@42', or offsets by partition: {'orders/1.7': 42}"
)
_EPOCH: Final = utc_time(0)


class StartMarks(NamedTuple):
    """The low-water marks that a start or a seek sets in the streams of a topic.

    `whole`: it sets the marks of all streams, and 0 where `marks` lists none. Otherwise streams
    that `marks` does not list keep theirs. `skipped` are single offsets to acknowledge, in streams
    that keep their marks.
    """

    whole: bool
    marks: Mapping[Stream, int]
    skipped: Mapping[Stream, int] = MappingProxyType({})


FROM_ZERO: Final = StartMarks(True, {})
"""The marks for every stream from its first record on."""


def parse_start(value: StartLike, what: str = "start") -> Start:
    """Parse a start. Raises `InvalidValue`, which names the value `what` and lists the forms."""
    try:
        return _parse(value)
    except InvalidValue as error:
        raise InvalidValue(what, value, error.valid, error.remedy) from None


def _parse(value: StartLike) -> Start:
    match value:
        case Extreme() | AtTime():
            return value
        case Position():
            return (value,)
        case datetime() if value.tzinfo is not None:
            return AtTime((value - _EPOCH) // timedelta(milliseconds=1))
        case str() if value.strip():
            return _parse_text(value.strip())
        case Mapping() if value:
            return _in_order([_position(where, at) for where, at in value.items()])
        case tuple() if positions := [each for each in value if isinstance(each, Position)]:
            return _in_order(positions)
    raise InvalidValue("start", value, _FORMS)


def format_start(start: Start) -> str:
    """Return the text of a start, which `parse_start` accepts."""
    match start:
        case Extreme():
            return start.value
        case AtTime():
            time = _EPOCH + timedelta(milliseconds=start.time_ms)
            return f"@{time.isoformat(timespec='milliseconds')}"
    return " ".join(map(str, start))


def _parse_text(text: str) -> Start:
    if "@" in text and not text.startswith("@"):
        return _in_order([Position.parse(position) for position in text.split()])
    spec = parse_offset_spec(text, valid=_TEXT_FORMS)
    if isinstance(spec, Newest):
        shown = f"tailrace tail TOPIC --from {text} --exit -f '%p@%o'"
        remedy = f"for the newest {spec.count:,}, list their positions and give the first: {shown}"
        raise InvalidValue("start", text, _TEXT_FORMS, remedy)
    if isinstance(spec, Position):
        raise InvalidValue("start", text, _TEXT_FORMS)
    return spec


def _position(where: Partition | str, offset: int) -> Position:
    partition = Partition.parse(where) if isinstance(where, str) else where
    if not isinstance(partition, Partition) or not is_whole(offset):
        raise InvalidValue("start", {where: offset}, _FORMS)
    return Position(*partition, offset)


def _in_order(positions: list[Position]) -> tuple[Position, ...]:
    if len({position[:3] for position in positions}) != len(positions):
        raise InvalidValue("start", " ".join(map(str, positions)), "one position in a partition")
    return tuple(sorted(positions))


def place_start(log: Log, topic: str, definition: Definition, start: Start) -> StartMarks:
    """Return the marks of a new group in a topic.

    With positions, the group starts at those in their partitions, at 0 in the other partitions of
    the same and of later storage topics, and skips earlier storage topics.
    """
    if not isinstance(start, tuple):
        return _place_everywhere(log, topic, definition, start)
    named = _named(log, topic, definition, start)
    first = min((storage for storage, _ in named), default=0)
    held = held_streams(log, topic, definition)
    skipped = {stream: bounds.end for stream, bounds in held.items() if stream[0] < first}
    return StartMarks(True, skipped | named)


def place_seek(log: Log, topic: str, definition: Definition, start: Start) -> StartMarks:
    """Return the marks of a group in a topic after a seek.

    With positions, it moves those partitions, and sets the partitions that follow them to 0. All
    others keep their marks, so a partition still waits for the partitions that it follows.
    """
    if not isinstance(start, tuple):
        return _place_everywhere(log, topic, definition, start)
    named = _named(log, topic, definition, start)
    reached = followers(definition.router, definition.storage[: definition.pointer + 1], named)
    held = {stream for stream in reached if stream[0] not in definition.deleted}
    return StartMarks(False, dict.fromkeys(held, 0) | named)


def _place_everywhere(
    log: Log, topic: str, definition: Definition, spec: Extreme | AtTime
) -> StartMarks:
    if spec is Extreme.EARLIEST:
        return FROM_ZERO
    held = held_streams(log, topic, definition)
    marks = {
        stream: offset_at(log, Partition(topic, *stream), bounds, spec)
        for stream, bounds in held.items()
    }
    return StartMarks(True, marks)


def _named(
    log: Log, topic: str, definition: Definition, positions: tuple[Position, ...]
) -> dict[Stream, int]:
    """Return the marks that positions name. Raises `OutOfRange`, also as `StorageDeleted`, or
    `InvalidValue` for an unknown partition."""
    named: dict[Stream, int] = {}
    for position in positions:
        if position.topic == topic:
            where = definition.check_held(Partition(*position[:3]), position.offset)
            start, end, _ = log.bounds(where)
            if not start <= position.offset <= end:
                raise OutOfRange(str(where), position.offset, start, end)
            named[where.storage, where.number] = position.offset
    return named
