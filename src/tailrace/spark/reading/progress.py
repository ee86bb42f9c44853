"""The progress of a streaming query that reads topics. For the user's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tailrace.spark.offsets import TopicOffsets, from_json


def lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the number of offsets of each topic that a streaming query has still to read.

    `progress` is ``query.lastProgress`` or an entry of ``query.recentProgress``; before the first
    batch there is none, and no lag either. Sources other than `tailrace` are left out. Offsets have
    gaps, so there can be fewer messages.
    """
    found: dict[str, int] = {}
    for source in [] if progress is None else progress["sources"]:
        read, newest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for topic, (identity, ends) in newest.items():
            known = read.get(topic)
            done = known.next if known is not None and known.identity == identity else {}
            left = sum(max(0, end - done.get(stream, 0)) for stream, end in ends.items())
            found[topic] = found.get(topic, 0) + left
    return found


def _offsets(written: object) -> Mapping[str, TopicOffsets]:
    """Return the offsets that this source wrote; none of those of another source."""
    if not isinstance(written, str):
        return {}
    try:
        return from_json(msgspec.json.decode(written, type=dict[str, dict[str, int | str]]))
    except (msgspec.DecodeError, ValueError):
        return {}
