"""How far one trigger reads: whose turn it is, and how much of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from tailrace.backend.contract import Bounds, Log
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import Error, UnknownTopic
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.spark.offsets import Edge, Named, Progress, resolve
from tailrace.topic.composite import Definition
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import held_streams, turns
from tailrace.topic.view import find

_LOG: Final = logging.getLogger(__name__)


class Held(NamedTuple):
    """A topic at one look: what it is, and what each stream holds."""

    topic: str
    definition: Definition
    streams: Mapping[Stream, Bounds]

    def partition(self, stream: Stream) -> Partition:
        """A stream by the name the log has for it."""
        return Partition(self.topic, *stream)


def look(hub: Hub, topic: str) -> Held:
    """What a topic holds now; `UnknownTopic` when there is none."""
    stored = find(hub.backend, topic)
    if stored is None:
        raise UnknownTopic(topic, hub.backend.name, hub.topics())
    definition = stored.definition
    return Held(topic, definition, held_streams(hub.backend.log, topic, definition))


class Lag(NamedTuple):
    """Records that wait in a stream: from `at` up to, not including, `end`."""

    partition: Partition
    at: int
    end: int


class Loss(NamedTuple):
    """What to do about records that were to be read and are not there."""

    fails: bool

    def report(self, what: str) -> None:
        """Raise an `Error`, or write it to the log and return."""
        if self.fails:
            raise Error(what, "to go on with what there is: option failOnDataLoss=false")
        _warn(what)


@lru_cache(maxsize=1000)
def _warn(what: str) -> None:
    """Say it once, not with every trigger."""
    _LOG.warning("%s; going on with what there is", what)


def edge_of(log: Log, held: Held, edge: Edge, loss: Loss) -> dict[Stream, int]:
    """The offset of an edge in each stream of a topic, within what the stream holds."""
    if isinstance(edge, Named):
        for stream in edge.offsets.get(held.topic, {}):
            held.definition.check_partition(held.partition(stream))
    return {
        stream: _within(held, stream, resolve(log, edge, held.partition(stream), bounds), loss)
        for stream, bounds in held.streams.items()
    }


def resume(held: Held, progress: Progress | None, loss: Loss) -> dict[Stream, int]:
    """From which offset to go on in each stream; one never begun is read from its oldest record."""
    known: Mapping[Stream, int] = {}
    if progress is not None and progress.identity == held.definition.identity:
        known = progress.next
    elif progress is not None:
        loss.report(f"topic {held.topic!r} was deleted and made again since it was last read")
    return {
        stream: _within(held, stream, known.get(stream, bounds.start), loss)
        for stream, bounds in held.streams.items()
    }


def _within(held: Held, stream: Stream, offset: int, loss: Loss) -> int:
    start, end, _ = held.streams[stream]
    if not start <= offset <= end:
        where = held.partition(stream)
        loss.report(f"{where}@{offset} is not there: it holds offsets from {start} up to {end}")
    return min(max(offset, start), end)


def open_streams(held: Held, offsets: Mapping[Stream, int]) -> list[Lag]:
    """What may be read next: of streams whose predecessors were all read to their sealed ends."""
    drained = {stream: offsets[stream] >= bounds.end for stream, bounds in held.streams.items()}
    found = turns(held.definition, held.streams, lambda stream, _: drained[stream])
    return [
        Lag(held.partition(stream), offsets[stream], held.streams[stream].end)
        for stream in found.open
        if not drained[stream]
    ]


def shares(lags: Sequence[int], limit: int) -> list[int]:
    """`limit` divided as evenly as can be: nobody gets more than they lag, and the total is no
    more than `limit`. When there is less than one each, the longest lags come first."""
    given = [0] * len(lags)
    order = sorted(range(len(lags)), key=lambda index: lags[index])
    for place, index in enumerate(order):
        given[index] = min(lags[index], limit // (len(order) - place))
        limit -= given[index]
    return given


def admit_offsets(log: EmbeddedLog, lags: Sequence[Lag], limit: int) -> list[Lag]:
    """The lags cut to about `limit` offsets, of which gaps in front do not count."""
    filled = [_without_gap(log, lag) for lag in lags]
    granted = shares([lag.end - lag.at for lag in filled], limit)
    return [
        Lag(lag.partition, lag.at, after.at + count)
        for lag, after, count in zip(lags, filled, granted, strict=True)
    ]


def _without_gap(log: EmbeddedLog, lag: Lag) -> Lag:
    for _, entries in log.entries(lag.partition, lag.at):
        return Lag(lag.partition, min(max(lag.at, entries[0].base), lag.end), lag.end)
    return Lag(lag.partition, lag.end, lag.end)


def admit_bytes(log: EmbeddedLog, lags: Sequence[Lag], limit_bytes: int) -> list[Lag]:
    """The lags cut to about `limit_bytes` in all, but to no less than one record each."""
    share = limit_bytes // len(lags)
    return [Lag(lag.partition, lag.at, _reach(log, lag, share)) for lag in lags]


def _reach(log: EmbeddedLog, lag: Lag, limit_bytes: int) -> int:
    """The offset before which about so many bytes lie. Records of a batch count as equally big."""
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
