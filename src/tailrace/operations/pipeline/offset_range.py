"""Parsing of commit log offsets: ``14``, ``14-15``, ``lake.commits/0.0@14``."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from tailrace.errors import InvalidValue
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.pipeline.offsets import Offsets

_FORM: Final = re.compile(r"(?:(?P<where>[^@\s]+)@)?(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?")


class OffsetRange(NamedTuple):
    """A range of offsets in one partition."""

    partition: Partition
    offsets: Offsets

    def __str__(self) -> str:
        return f"{self.partition}@{format_offsets(self.offsets)}"


def format_offsets(offsets: Offsets) -> str:
    """Return a range as text: ``14``, or ``14-15``, the last offset included."""
    last = offsets.end - 1
    return str(offsets.start) if last <= offsets.start else f"{offsets.start}-{last}"


def parse_offset_range(log: Topic[Any], text: str) -> OffsetRange:
    """Parse offsets of a commit log. Raise `InvalidValue` for any other text.

    The partition may be omitted if the log has one partition.
    """
    found = _FORM.fullmatch(text)
    example = f"{log.name}/0.0@14"
    if found is None:
        raise InvalidValue("offset", text, f"14, 14-15, or {example}")
    first = int(found["first"])
    last = int(found["last"] or first)
    if last < first:
        raise InvalidValue("offset", text, "a range with the lower offset first")
    return OffsetRange(_partition(log, text, found["where"], example), Offsets(first, last + 1))


def _partition(log: Topic[Any], text: str, where: str | None, example: str) -> Partition:
    if where is not None:
        partition = Partition.parse(where)
        if partition.topic != log.name:
            raise InvalidValue("offset", text, f"an offset of {log.name}, such as {example}")
        return log.view.refresh().definition.check_held(partition)
    held = log.storage_topics
    partitions = sum(storage.partitions for storage in held)
    if partitions > 1:
        raise InvalidValue(
            "offset", text, f"a position such as {example}: {log.name} has {partitions} partitions"
        )
    return Partition(log.name, held[0].index, 0)
