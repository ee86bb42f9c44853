"""Admission: the partitions that one trigger reads, and how far."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from tailrace.backend.capabilities import HasSegments
from tailrace.backend.contract import Bounds, Log
from tailrace.errors import Error, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.spark.offsets import OffsetOption, TopicOffsets, named_streams, resolve
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import find_open_streams, held_streams
from tailrace.topic.view import find

_LOG: Final = logging.getLogger(__name__)


class TopicSnapshot(NamedTuple):
    """A topic at one point in time: its definition, and the bounds of each stream."""

    topic: str
    definition: Definition
    streams: Mapping[Stream, Bounds]

    def partition(self, stream: Stream) -> Partition:
        """Return the partition of a stream."""
        return Partition(self.topic, *stream)


def take_snapshot(hub: Hub, topic: str, only: Collection[Stream] | None = None) -> TopicSnapshot:
    """Return the current state of a topic, or of some of its streams.

    `UnknownTopic` if the topic does not exist, `InvalidValue` if it has no such stream.
    """
    stored = find(hub.backend, topic)
    if stored is None:
        raise UnknownTopic(topic, hub.backend.name, hub.topics())
    definition = stored.definition
    for stream in only or ():
        definition.check_partition(Partition(topic, *stream))
    held = held_streams(hub.backend.log, topic, definition)
    chosen = {each: bounds for each, bounds in held.items() if only is None or each in only}
    return TopicSnapshot(topic, definition, chosen)


class Lag(NamedTuple):
    """Unread records of a partition: the offsets from `at` to `end`, without `end`."""

    partition: Partition
    at: int
    end: int


class DataLossPolicy(NamedTuple):
    """What to do if records that were to be read do not exist."""

    fails: bool

    def report(self, what: str) -> None:
        """Raise an `Error`, or log a warning and return."""
        if self.fails:
            raise Error(what, "to continue with the existing records: option failOnDataLoss=false")
        _warn(what)


@lru_cache(maxsize=1000)
def _warn(what: str) -> None:
    """Log a warning once, not at every trigger."""
    _LOG.warning("%s; continuing with the existing records", what)


def offsets_of_spec(
    log: Log, snapshot: TopicSnapshot, spec: OffsetOption, loss: DataLossPolicy
) -> dict[Stream, int]:
    """Return the offset of a spec in each stream of a topic, within the stream's bounds."""
    for stream in named_streams(spec).get(snapshot.topic, ()):
        snapshot.definition.check_partition(snapshot.partition(stream))
    return {
        stream: _within(
            snapshot, stream, resolve(log, spec, snapshot.partition(stream), bounds), loss
        )
        for stream, bounds in snapshot.streams.items()
    }


def resume(
    snapshot: TopicSnapshot, progress: TopicOffsets | None, loss: DataLossPolicy
) -> dict[Stream, int]:
    """Return the next offset of each stream.

    A stream that was not read before starts at its oldest record.
    """
    known: Mapping[Stream, int] = {}
    if progress is not None and progress.identity == snapshot.definition.identity:
        known = progress.next
    elif progress is not None:
        loss.report(
            f"topic {snapshot.topic!r} was deleted and created again since it was last read"
        )
    for (storage, number), at in known.items():
        deleted = snapshot.definition.deleted.get(storage)
        if deleted is not None and at < deleted[number].end:
            where, end = snapshot.partition((storage, number)), deleted[number].end
            loss.report(f"{where} was deleted, and read up to offset {at} of {end} only")
    return {
        stream: _within(snapshot, stream, known.get(stream, bounds.start), loss)
        for stream, bounds in snapshot.streams.items()
    }


def _within(snapshot: TopicSnapshot, stream: Stream, offset: int, loss: DataLossPolicy) -> int:
    start, end, _ = snapshot.streams[stream]
    if not start <= offset <= end:
        where = snapshot.partition(stream)
        loss.report(
            f"{where}@{offset} does not exist: {where} starts at {start} and ends before {end}"
        )
    return min(max(offset, start), end)


def open_streams(snapshot: TopicSnapshot, offsets: Mapping[Stream, int]) -> list[Lag]:
    """Return the lags of the streams whose predecessors were all read to their sealed ends."""
    drained = {stream: offsets[stream] >= bounds.end for stream, bounds in snapshot.streams.items()}
    found = find_open_streams(
        snapshot.definition, snapshot.streams, lambda stream, _: drained[stream]
    )
    return [
        Lag(snapshot.partition(stream), offsets[stream], snapshot.streams[stream].end)
        for stream in found.open
        if not drained[stream]
    ]


def divide_evenly(lags: Sequence[int], limit: int) -> list[int]:
    """Divide `limit` as evenly as possible, so that no share exceeds its lag.

    The total is at most `limit`. If there is less than one for each, the longest lags come first.
    """
    given = [0] * len(lags)
    order = sorted(range(len(lags)), key=lambda index: lags[index])
    for rank, index in enumerate(order):
        given[index] = min(lags[index], limit // (len(order) - rank))
        limit -= given[index]
    return given


def admit_offsets(log: HasSegments, lags: Sequence[Lag], limit: int) -> list[Lag]:
    """Cut the lags to about `limit` offsets in total; gaps at their starts do not count."""
    filled = [_without_gap(log, lag) for lag in lags]
    granted = divide_evenly([lag.end - lag.at for lag in filled], limit)
    return [
        Lag(lag.partition, lag.at, after.at + count)
        for lag, after, count in zip(lags, filled, granted, strict=True)
    ]


def _without_gap(log: HasSegments, lag: Lag) -> Lag:
    for _, entries in log.entries(lag.partition, lag.at):
        return Lag(lag.partition, min(max(lag.at, entries[0].base), lag.end), lag.end)
    return Lag(lag.partition, lag.end, lag.end)


def split_lags(log: HasSegments, lags: Sequence[Lag], records_max: int | None) -> list[Lag]:
    """Split each lag into parts of at most `records_max` records; None splits nothing."""
    if records_max is None:
        return list(lags)
    return [
        Lag(lag.partition, one, other)
        for lag in lags
        for one, other in pairwise([*_cuts(log, lag, records_max), lag.end])
    ]


def _cuts(log: HasSegments, lag: Lag, records_max: int) -> list[int]:
    """Return where the parts of a lag start. Gaps between offsets have no records."""
    cuts, count = [lag.at], 0
    for _, entries in log.entries(lag.partition, lag.at):
        for entry in entries:
            first, last = max(entry.base, lag.at), min(entry.base + entry.records, lag.end)
            if first >= last:
                return cuts
            while count + last - first > records_max:
                first += records_max - count
                cuts.append(first)
                count = 0
            count += last - first
    return cuts


def admit_bytes(log: HasSegments, lags: Sequence[Lag], limit_bytes: int) -> list[Lag]:
    """Cut the lags to about `limit_bytes` in total, but to at least one record each."""
    share = limit_bytes // len(lags)
    return [Lag(lag.partition, lag.at, _offset_after(log, lag, share)) for lag in lags]


def _offset_after(log: HasSegments, lag: Lag, limit_bytes: int) -> int:
    """Return the offset before which about `limit_bytes` lie.

    Counts the records of a batch as equally large.
    """
    left = limit_bytes
    for _, entries in log.entries(lag.partition, lag.at):
        for entry in entries:
            begin = max(entry.base, lag.at)
            size = entry.bytes * (entry.base + entry.records - begin) // entry.records
            if size >= left:
                fitting = left * entry.records // entry.bytes
                first = left == limit_bytes
                return min(lag.end, begin + max(fitting, 1 if first else 0))
            left -= size
            if entry.base + entry.records >= lag.end:
                return lag.end
    return lag.end
