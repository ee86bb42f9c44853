"""Messages that a source pushes to topics beside its commit log: checked, encoded and routed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import InvalidValue, MessageTooLarge
from tailrace.hub.topic import Topic
from tailrace.log.columns import records_of
from tailrace.log.control import control_mask
from tailrace.payload import Payload
from tailrace.settings import HubSettings
from tailrace.source.reader import BadRecord, Push
from tailrace.topic.internal_topics import check_new_topic, check_not_queue
from tailrace.topic.reserved_headers import check_header_names
from tailrace.topic.routed_batch import Part, RoutedBatch
from tailrace.topic.view import View, find

_COLUMNS: Final = ["timestamp", "mode", "op", "key", "headers", "value"]


class PushedTopics:
    """The topics of one hub that a source pushes to. `reserved` are those of the source itself."""

    def __init__(
        self, backend: Backend, settings: HubSettings, clock: Clock, reserved: Collection[str]
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._reserved = reserved
        self._topics: dict[str, Topic[Any]] = {}

    @property
    def hub_name(self) -> str:
        """The name of the hub, for people."""
        return self._backend.name

    @property
    def views(self) -> Mapping[str, View]:
        """The topics found so far, by name."""
        return {name: topic.view for name, topic in self._topics.items()}

    def find(self, name: str) -> Topic[Any] | None:
        """Return a topic as it is now; None if there is none.

        `InvalidValue` or `InvalidName` for a topic that no user may push to: a queue of a
        subscription, an internal topic, or a topic of a pipeline.
        """
        if name in self._reserved:
            raise InvalidValue("topic", name, "a topic that the source does not append its rows to")
        check_not_queue(name)
        check_new_topic(name)
        stored = find(self._backend, name)
        if stored is None:
            self._topics.pop(name, None)
            return None
        known = self._topics.get(name)
        # A topic that was deleted and created again may have another order.
        if known is None or known.view.definition.identity != stored.definition.identity:
            payload: Payload[Any] = Payload(None, stored.definition.content_type)
            view = View(self._backend, name, stored)
            known = self._topics[name] = Topic(view, payload, self._settings, self._clock)
        return known


class EncodedPush:
    """The messages of a push that their topic takes, and as bad records those that it does not.

    A topic does not take a message that is too large, or lacks the key that the topic is ordered
    by. One that does not exist takes none. `rows` is the number of messages that are taken, without
    control records, and `bytes` their size. Raises the errors of `PushedTopics.find`, and
    `InvalidValue` if a message has a reserved header.
    """

    def __init__(self, topics: PushedTopics, push: Push, position: object) -> None:
        check_header_names(push.records["headers"])
        self._topic = topics.find(push.topic)
        if self._topic is None:
            error = f"there is no topic {push.topic!r} in {topics.hub_name}"
            refused = dict.fromkeys(range(push.records.num_rows), error)
        else:
            refused = dict(_refused(self._topic, push.records))
        self.bad = [_bad_record(push, index, refused[index], position) for index in refused]
        mask = np.ones(push.records.num_rows, np.bool_)
        mask[list(refused)] = False
        taken = push.records.filter(pa.array(mask)) if refused else push.records
        self.rows = int((~control_mask(taken)).sum())
        self._batch: RoutedBatch | None = None
        if self._topic is not None and taken.num_rows:
            self._batch = self._topic.builder.columns(taken.select(_COLUMNS))
        self.bytes = self._batch.size_bytes if self._batch is not None else 0

    def route(self) -> tuple[tuple[Part, ...], Mapping[str, int]]:
        """Return the appends to the current partitions, and `Transaction.since` for them."""
        if self._topic is None or self._batch is None:
            return (), {}
        target = self._topic.view.target
        return self._batch.route(target), target.since


def _refused(
    topic: Topic[Any], records: pa.RecordBatch, first: int = 0
) -> Iterator[tuple[int, str]]:
    """Yield the index of each message that the topic does not take, with the reason."""
    if not records.num_rows:
        return
    try:
        topic.builder.columns(records.select(_COLUMNS))
    except (InvalidValue, MessageTooLarge) as error:
        if records.num_rows == 1:
            yield first, str(error)
            return
        half = records.num_rows // 2
        yield from _refused(topic, records.slice(0, half), first)
        yield from _refused(topic, records.slice(half), first + half)


def _bad_record(push: Push, index: int, error: str, position: object) -> BadRecord:
    [record] = records_of(push.records.slice(index, 1))
    key = (record.key or b"").decode("utf-8", "backslashreplace")
    where = f"a message for topic {push.topic!r} with key {key!r}, before position {position!r}"
    return BadRecord(push.topic, where, error, record.value)
