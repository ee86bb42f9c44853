"""Offsets as Spark keeps them and as people write them: JSON, per topic and partition.

    {"orders": {"0.3": 42, "1.7": -2}}

``1.7`` is partition 7 of storage topic 1. An offset is that of the next record to read; -2 is the
oldest and -1 after the newest. Spark's own also name each topic's ``identity``, which tells a topic
from a later one of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tailrace.backend.contract import Bounds, Log
from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.topic.edge import Extreme, Moment, offset_at
from tailrace.topic.lineage import Stream

EARLIEST: Final = -2
LATEST: Final = -1
FORM: Final = 'earliest, latest, or JSON such as {"orders": {"0.3": 42, "1.7": -2}}'

_IDENTITY: Final = "identity"
_STREAM: Final = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)", re.ASCII)


class Named(NamedTuple):
    """The offset of each stream that is named, and for all others the one given in `rest`."""

    offsets: Mapping[str, Mapping[Stream, int]]
    rest: Extreme


Edge: TypeAlias = Extreme | Moment | Named
"""Where a reading begins or ends."""


class Progress(NamedTuple):
    """How far a topic is read: the offset to go on from, for each stream that was begun."""

    identity: str
    next: Mapping[Stream, int]


def parse_edge(text: str, what: str, rest: Extreme) -> Extreme | Named:
    """Read what a person wrote; `InvalidValue` shows the forms."""
    if text in ("earliest", "latest"):
        return Extreme(text)
    try:
        given = msgspec.json.decode(text, type=dict[str, dict[str, int | str]])
        named = {topic: _streams(offsets) for topic, offsets in given.items()}
    except (msgspec.DecodeError, ValueError):
        raise InvalidValue(what, text, FORM) from None
    if any(offset < EARLIEST for offsets in named.values() for offset in offsets.values()):
        raise InvalidValue(what, text, "offsets from 0 on, -2 for the oldest, -1 for the newest")
    return Named(named, rest)


def _streams(offsets: Mapping[str, Any]) -> dict[Stream, int]:
    found = {}
    for name, offset in offsets.items():
        if name == _IDENTITY:
            continue
        match = _STREAM.fullmatch(name)
        if match is None or not isinstance(offset, int):
            raise ValueError(name)
        found[int(match[1]), int(match[2])] = offset
    return found


def resolve(log: Log, edge: Edge, partition: Partition, bounds: Bounds) -> int:
    """The offset of an edge in one partition; it may lie outside of what the partition holds."""
    if not isinstance(edge, Named):
        return offset_at(log, partition, bounds, edge)
    named = edge.offsets.get(partition.topic, {})
    wanted = named.get((partition.storage, partition.number))
    if wanted is None:
        return offset_at(log, partition, bounds, edge.rest)
    return {EARLIEST: bounds.start, LATEST: bounds.end}.get(wanted, wanted)


def to_json(progress: Mapping[str, Progress]) -> dict[str, dict[str, int | str]]:
    """What Spark writes to its checkpoint. Equal progress gives equal text."""
    return {
        topic: {_IDENTITY: identity}
        | {f"{storage}.{number}": at for (storage, number), at in sorted(offsets.items())}
        for topic, (identity, offsets) in sorted(progress.items())
    }


def from_json(written: Mapping[str, Mapping[str, Any]]) -> dict[str, Progress]:
    """The progress that `to_json` wrote."""
    return {
        topic: Progress(str(offsets.get(_IDENTITY, "")), _streams(offsets))
        for topic, offsets in written.items()
    }
