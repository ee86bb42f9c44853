"""Reading topics as they grow, in the order of their lineage."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.clock import Clock, SystemClock
from tailrace.errors import UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.spark.admission import (
    DataLossPolicy,
    Lag,
    TopicSnapshot,
    admit_bytes,
    admit_offsets,
    offsets_of_spec,
    open_streams,
    resume,
    split_lags,
    take_snapshot,
)
from tailrace.spark.columns import check_read
from tailrace.spark.hubs import hub_at, log_of
from tailrace.spark.offsets import TopicOffsets, from_json, to_json
from tailrace.spark.options import ReadMode, ReadOptions, read_options
from tailrace.spark.ranges import plan_ranges
from tailrace.spark.tasks import read_task, tasks_of
from tailrace.spark.tracebacks import hide_traceback
from tailrace.topic.lineage import Stream

Offset: TypeAlias = dict[str, Any]

_CLOCK: Final = SystemClock()


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads in micro-batches.

    A partition starts only after an earlier batch finished all that it follows. Spark does not show
    errors of the constructor, so the options are checked at their first use.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, clock: Clock = _CLOCK
    ) -> None:
        self._given = dict(options)
        self._schema = schema
        self._clock = clock
        self._triggered_s: float | None = None
        self._target: dict[str, TopicOffsets] | None = None
        self._newest: dict[str, TopicOffsets] = {}

    def initialOffset(self) -> Offset:
        """Return the offsets where a query without a checkpoint starts."""
        with hide_traceback():
            check_read(self._schema)
            options, hub = self._opened()
            log, loss = log_of(hub), DataLossPolicy(options.fail_on_data_loss)
            snapshots = _snapshots(hub, options, options.subscribed(hub.topics()), (), loss)
            return to_json(
                {
                    each.topic: TopicOffsets(
                        each.definition.identity,
                        offsets_of_spec(log, each, options.starting, loss),
                    )
                    for each in snapshots
                }
            )

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit of a trigger; `latestOffset` applies all that are set."""
        with hide_traceback():
            options = self._options()
        if options.offsets_min is not None:
            return ReadMinRows(options.offsets_min)
        if options.offsets_max is not None:
            return ReadMaxRows(options.offsets_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the end offsets, so that later batches read no record stored after this call."""
        with hide_traceback():
            options, hub = self._opened()
            topics = options.subscribed(hub.topics())
            # `latestOffset` reports a deleted topic: it knows if the topic was begun.
            lenient = DataLossPolicy(fails=False)
            self._target = _ends(_snapshots(hub, options, topics, topics, lenient))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end offsets of the next batch: `start` itself if there is nothing to read."""
        with hide_traceback():
            options, hub = self._opened()
            loss = DataLossPolicy(options.fail_on_data_loss)
            begun = from_json(start)
            topics = [*options.subscribed(hub.topics()), *filter(options.subscribes, begun)]
            snapshots = _snapshots(hub, options, topics, begun, loss)
            self._newest = _ends(snapshots)
            resumed = {
                each.topic: TopicOffsets(
                    each.definition.identity, resume(each, begun.get(each.topic), loss)
                )
                for each in snapshots
            }
            lags = [
                lag for each in snapshots for lag in open_streams(each, resumed[each.topic].next)
            ]
            if self._target is not None:
                lags = _up_to(lags, self._target)
            if not isinstance(limit, ReadAllAvailable):
                if self._waits(lags, options):
                    return start
                lags = _admitted(hub, lags, options) if lags else lags
            reached = to_json(begun | _reached(begun, resumed, lags))
            return start if reached == start else reached

    def reportLatestOffset(self) -> Offset | None:
        """Return the end offsets of all partitions, as `latestOffset` last saw them."""
        return to_json(self._newest)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks that read the records between two offsets."""
        with hide_traceback():
            options, hub = self._opened()
            loss = DataLossPolicy(options.fail_on_data_loss)
            begun, reached = from_json(start), from_json(end)
            lags = []
            for snapshot in _snapshots(hub, options, reached, reached, loss):
                wanted = reached[snapshot.topic]
                starts = resume(snapshot, _same(begun.get(snapshot.topic), wanted), loss)
                ends = resume(snapshot, wanted, loss)
                lags += [
                    Lag(snapshot.partition(stream), starts[stream], ends[stream])
                    for stream in wanted.next
                    if stream in starts and starts[stream] < ends[stream]
                ]
            log = log_of(hub)
            parts = split_lags(log, lags, options.records_max)
            return tasks_of(plan_ranges(log, parts, options.partitions_min, None))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        options = self._options()
        return read_task(partition, self._schema, hub=options.hub, control=options.include_control)

    def _waits(self, lags: Sequence[Lag], options: ReadOptions) -> bool:
        """True if a trigger has too few records, and may wait for more of them.

        The first trigger does not wait, and a query that ends with the present records never does.
        """
        if options.offsets_min is None or self._target is not None or not lags:
            return False
        now_s = self._clock.monotonic()
        delay_s = options.trigger_delay_max.total_seconds()
        is_due = self._triggered_s is None or now_s - self._triggered_s >= delay_s
        if not is_due and sum(lag.end - lag.at for lag in lags) < options.offsets_min:
            return True
        self._triggered_s = now_s
        return False

    def _options(self) -> ReadOptions:
        return read_options(self._given, ReadMode.STREAM)

    def _opened(self) -> tuple[ReadOptions, Hub]:
        options = self._options()
        return options, hub_at(options.hub, "ro")


def _snapshots(
    hub: Hub,
    options: ReadOptions,
    topics: Iterable[str],
    begun: Container[str],
    loss: DataLossPolicy,
) -> list[TopicSnapshot]:
    """Return the snapshots of topics.

    A topic that was begun and deleted is a data loss; any other must exist.
    """
    found = []
    for topic in dict.fromkeys(topics):
        try:
            found.append(take_snapshot(hub, topic, options.assigned.get(topic)))
        except UnknownTopic:
            if topic not in begun:
                raise
            loss.report(f"topic {topic!r} was deleted since it was last read")
    return found


def _ends(snapshots: Sequence[TopicSnapshot]) -> dict[str, TopicOffsets]:
    return {
        each.topic: TopicOffsets(
            each.definition.identity,
            {stream: bounds.end for stream, bounds in each.streams.items()},
        )
        for each in snapshots
    }


def _up_to(lags: Sequence[Lag], target: Mapping[str, TopicOffsets]) -> list[Lag]:
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
    begun: Mapping[str, TopicOffsets],
    resumed: Mapping[str, TopicOffsets],
    lags: Sequence[Lag],
) -> dict[str, TopicOffsets]:
    """Return the offsets after a batch of these lags.

    Partitions that were not begun are left out, so that the offsets do not change without records
    to read.
    """
    ends: dict[str, dict[Stream, int]] = {}
    for (topic, storage, number), _, end in lags:
        ends.setdefault(topic, {})[storage, number] = end
    reached = {}
    for topic, (identity, offsets) in resumed.items():
        known = begun[topic].next if topic in begun else {}
        kept = {stream: at for stream, at in offsets.items() if stream in known}
        if topic in begun or topic in ends:
            reached[topic] = TopicOffsets(identity, kept | ends.get(topic, {}))
    return reached


def _same(begun: TopicOffsets | None, wanted: TopicOffsets) -> TopicOffsets | None:
    """Return the offsets that were begun, unless they are of another topic of the same name."""
    return begun if begun is not None and begun.identity == wanted.identity else None
