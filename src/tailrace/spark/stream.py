"""Reading topics as they grow, in the order that lineage demands."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.errors import UnknownTopic
from tailrace.hub import Hub
from tailrace.spark.admission import (
    Held,
    Lag,
    Loss,
    admit_bytes,
    admit_offsets,
    edge_of,
    look,
    open_streams,
    resume,
)
from tailrace.spark.columns import check_read
from tailrace.spark.hubs import hub_at, log_of
from tailrace.spark.offsets import Progress, from_json, to_json
from tailrace.spark.options import Reading, ReadOptions, read_options
from tailrace.spark.plainly import plainly
from tailrace.spark.ranges import plan
from tailrace.spark.tasks import read_task, tasks_of
from tailrace.topic.lineage import Stream

Offset: TypeAlias = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in micro-batches. A stream begins only when a batch before finished what it follows.

    Spark does not show what its constructor raises, so options are looked at when first used.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options)
        self._schema = schema
        self._target: dict[str, Progress] | None = None
        self._newest: dict[str, Progress] = {}

    def initialOffset(self) -> Offset:
        """Where a query without a checkpoint begins."""
        with plainly():
            check_read(self._schema)
            options, hub = self._opened()
            log, loss = log_of(hub), Loss(options.fail_on_data_loss)
            return to_json(
                {
                    held.topic: Progress(
                        held.definition.identity, edge_of(log, held, options.starting, loss)
                    )
                    for held in _looks(hub, options.subscribed(hub.topics()), (), loss)
                }
            )

    def getDefaultReadLimit(self) -> ReadLimit:
        """What a trigger may read. Where both limits are set, `latestOffset` heeds both."""
        with plainly():
            options = self._options()
        if options.offsets_max is not None:
            return ReadMaxRows(options.offsets_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, read nothing that is stored later."""
        with plainly():
            options, hub = self._opened()
            topics = options.subscribed(hub.topics())
            # Of one that is gone `latestOffset` will speak, which knows if it was begun.
            self._target = _ends(_looks(hub, topics, topics, Loss(fails=False)))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch reads: `start` itself when there is nothing to read."""
        with plainly():
            options, hub = self._opened()
            loss = Loss(options.fail_on_data_loss)
            begun = from_json(start)
            topics = [*options.subscribed(hub.topics()), *filter(options.subscribes, begun)]
            held = _looks(hub, topics, begun, loss)
            self._newest = _ends(held)
            resumed = {
                each.topic: Progress(
                    each.definition.identity, resume(each, begun.get(each.topic), loss)
                )
                for each in held
            }
            lags = [lag for each in held for lag in open_streams(each, resumed[each.topic].next)]
            if self._target is not None:
                lags = _up_to(lags, self._target)
            if lags and not isinstance(limit, ReadAllAvailable):
                lags = _admitted(hub, lags, options)
            reached = to_json(begun | _reached(begun, resumed, lags))
            return start if reached == start else reached

    def reportLatestOffset(self) -> Offset | None:
        """The end of all streams, as `latestOffset` last saw them."""
        return to_json(self._newest)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks that read what lies between two offsets."""
        with plainly():
            options, hub = self._opened()
            loss = Loss(options.fail_on_data_loss)
            begun, reached = from_json(start), from_json(end)
            lags = []
            for held in _looks(hub, reached, reached, loss):
                wanted = reached[held.topic]
                starts = resume(held, _same(begun.get(held.topic), wanted), loss)
                ends = resume(held, wanted, loss)
                lags += [
                    Lag(held.partition(stream), starts[stream], ends[stream])
                    for stream in wanted.next
                    if stream in starts and starts[stream] < ends[stream]
                ]
            return tasks_of(plan(log_of(hub), lags, options.partitions_min, None))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        return read_task(partition, self._schema)

    def _options(self) -> ReadOptions:
        return read_options(self._given, Reading.STREAM)

    def _opened(self) -> tuple[ReadOptions, Hub]:
        options = self._options()
        return options, hub_at(options.hub)


def _looks(hub: Hub, topics: Iterable[str], begun: Container[str], loss: Loss) -> list[Held]:
    """What topics hold. One that was begun and is gone is a loss; any other must be there."""
    found = []
    for topic in dict.fromkeys(topics):
        try:
            found.append(look(hub, topic))
        except UnknownTopic:
            if topic not in begun:
                raise
            loss.report(f"topic {topic!r} was deleted since it was last read")
    return found


def _ends(held: Sequence[Held]) -> dict[str, Progress]:
    return {
        each.topic: Progress(
            each.definition.identity,
            {stream: bounds.end for stream, bounds in each.streams.items()},
        )
        for each in held
    }


def _up_to(lags: Sequence[Lag], target: Mapping[str, Progress]) -> list[Lag]:
    cut = []
    for lag in lags:
        (topic, *stream), at, end = lag
        ends = target[topic].next if topic in target else {}
        end = min(end, ends.get((stream[0], stream[1]), at))
        if at < end:
            cut.append(Lag(lag.partition, at, end))
    return cut


def _admitted(hub: Hub, lags: list[Lag], options: ReadOptions) -> list[Lag]:
    if options.offsets_max is not None:
        lags = admit_offsets(log_of(hub), lags, options.offsets_max)
    if options.bytes_max is not None:
        lags = admit_bytes(log_of(hub), lags, options.bytes_max)
    return lags


def _reached(
    begun: Mapping[str, Progress],
    resumed: Mapping[str, Progress],
    lags: Sequence[Lag],
) -> dict[str, Progress]:
    """Where a batch of these lags leads.

    Streams not begun yet stay out, so that nothing seems new where there is nothing to read.
    """
    ends: dict[str, dict[Stream, int]] = {}
    for (topic, storage, number), _, end in lags:
        ends.setdefault(topic, {})[storage, number] = end
    reached = {}
    for topic, (identity, offsets) in resumed.items():
        known = begun[topic].next if topic in begun else {}
        kept = {stream: at for stream, at in offsets.items() if stream in known}
        if topic in begun or topic in ends:
            reached[topic] = Progress(identity, kept | ends.get(topic, {}))
    return reached


def _same(begun: Progress | None, wanted: Progress) -> Progress | None:
    """What was begun, unless that was of another topic of the name."""
    return begun if begun is not None and begun.identity == wanted.identity else None
