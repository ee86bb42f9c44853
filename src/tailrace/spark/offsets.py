"""Offsets as Spark stores them and as people write them: JSON, by topic and partition.

    {"orders": {"0.3": 42, "1.7": -2}}

``1.7`` is partition 7 of storage topic 1. An offset is that of the next record to read; -2 is the
oldest record and -1 the end. The offsets that Spark stores also have each topic's ``identity``,
which distinguishes a topic from a later one of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.topic.lineage import Stream
from tailrace.topic.offset_search import offset_at
from tailrace.topic.offset_spec import AtTime, Extreme, parse_time

EARLIEST: Final = -2
LATEST: Final = -1
FORM: Final = 'earliest, latest, or JSON such as {"orders": {"0.3": 42, "1.7": -2}}'
TIMES_FORM: Final = (
    'JSON such as {"orders": {"0.3": 1767225600000}}: milliseconds since 1970 UTC, or ISO 8601'
)
ASSIGN_FORM: Final = 'JSON such as {"orders": ["0.3", "1.7"]}'

_IDENTITY: Final = "identity"
_STREAM: Final = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)", re.ASCII)


class NamedOffsets(NamedTuple):
    """The offset of each named stream, and the offset `rest` for all others."""

    offsets: Mapping[str, Mapping[Stream, int]]
    rest: Extreme


class NamedTimes(NamedTuple):
    """The time of each named stream, in milliseconds, and the offset `rest` for all others."""

    times: Mapping[str, Mapping[Stream, int]]
    rest: Extreme


OffsetOption: TypeAlias = Extreme | AtTime | NamedOffsets | NamedTimes
"""Where a read starts or ends, as the options of the data source say."""


class TopicOffsets(NamedTuple):
    """The offsets up to which a topic was read: the next offset of each stream that was begun."""

    identity: str
    next: Mapping[Stream, int]


def parse_offset_option(text: str, what: str, rest: Extreme) -> Extreme | NamedOffsets:
    """Parse the offsets that a user wrote; `InvalidValue` shows the forms."""
    if text in ("earliest", "latest"):
        return Extreme(text)
    try:
        given = msgspec.json.decode(text, type=dict[str, dict[str, int | str]])
        named = {topic: _streams(offsets) for topic, offsets in given.items()}
    except (msgspec.DecodeError, ValueError):
        raise InvalidValue(what, text, FORM) from None
    if any(offset < EARLIEST for offsets in named.values() for offset in offsets.values()):
        raise InvalidValue(
            what, text, "offsets from 0 on, -2 for the oldest record, -1 for the end"
        )
    return NamedOffsets(named, rest)


def parse_times_option(text: str, what: str, rest: Extreme) -> NamedTimes:
    """Parse the times of partitions that a user wrote; `InvalidValue` shows the form."""
    try:
        given = msgspec.json.decode(text, type=dict[str, dict[str, int | str]])
        return NamedTimes(
            {
                topic: {_stream(name): _time_ms(time) for name, time in times.items()}
                for topic, times in given.items()
            },
            rest,
        )
    except (msgspec.DecodeError, ValueError):
        raise InvalidValue(what, text, TIMES_FORM) from None


def parse_assignment(text: str, what: str) -> dict[str, frozenset[Stream]]:
    """Parse the partitions that a user chose; `InvalidValue` shows the form."""
    try:
        given = msgspec.json.decode(text, type=dict[str, list[str]])
        chosen = {topic: frozenset(map(_stream, names)) for topic, names in given.items()}
    except (msgspec.DecodeError, ValueError):
        raise InvalidValue(what, text, ASSIGN_FORM) from None
    if not chosen or not all(chosen.values()):
        raise InvalidValue(what, text, ASSIGN_FORM)
    return chosen


def _time_ms(given: int | str) -> int:
    time_ms = parse_time(given) if isinstance(given, str) else given
    if time_ms is None or time_ms < 0:
        raise ValueError(given)
    return time_ms


def _stream(name: str) -> Stream:
    match = _STREAM.fullmatch(name)
    if match is None:
        raise ValueError(name)
    return int(match[1]), int(match[2])


def _streams(offsets: Mapping[str, Any]) -> dict[Stream, int]:
    found = {}
    for name, offset in offsets.items():
        if name == _IDENTITY:
            continue
        if not isinstance(offset, int):
            raise ValueError(name)
        found[_stream(name)] = offset
    return found


def named_streams(spec: OffsetOption) -> Mapping[str, Collection[Stream]]:
    """Return the streams that a spec names, by topic."""
    if isinstance(spec, NamedOffsets):
        return spec.offsets
    return spec.times if isinstance(spec, NamedTimes) else {}


def resolve(log: Log, spec: OffsetOption, partition: Partition, bounds: Bounds) -> int:
    """Return the offset of a spec in one partition.

    It may lie outside of the partition's bounds.
    """
    stream = partition.storage, partition.number
    if isinstance(spec, NamedTimes):
        time_ms = spec.times.get(partition.topic, {}).get(stream)
        at = spec.rest if time_ms is None else AtTime(time_ms)
        return offset_at(log, partition, bounds, at)
    if not isinstance(spec, NamedOffsets):
        return offset_at(log, partition, bounds, spec)
    wanted = spec.offsets.get(partition.topic, {}).get(stream)
    if wanted is None:
        return offset_at(log, partition, bounds, spec.rest)
    return {EARLIEST: bounds.start, LATEST: bounds.end}.get(wanted, wanted)


def to_json(progress: Mapping[str, TopicOffsets]) -> dict[str, dict[str, int | str]]:
    """Return the offsets that Spark writes to its checkpoint. Equal offsets give equal text."""
    return {
        topic: {_IDENTITY: identity}
        | {f"{storage}.{number}": at for (storage, number), at in sorted(offsets.items())}
        for topic, (identity, offsets) in sorted(progress.items())
    }


def from_json(written: Mapping[str, Mapping[str, Any]]) -> dict[str, TopicOffsets]:
    """Return the offsets that `to_json` wrote."""
    return {
        topic: TopicOffsets(str(offsets.get(_IDENTITY, "")), _streams(offsets))
        for topic, offsets in written.items()
    }
