"""`topic`: records into a topic, each exactly once, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from tailrace.backend.contract import FENCES
from tailrace.errors import ConfigError, TopicExists, UnknownTopic
from tailrace.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, Writer, WriterSession, log_of
from tailrace.spark.hubs import hub_at
from tailrace.topic.composite import check_name
from tailrace.topic.topic import Topic
from tailrace.writers.applied import Applied, applied_logs
from tailrace.writers.keys import KeyChoice
from tailrace.writers.topic_session import TopicSession


class TopicWriter(Writer, frozen=True):
    """Records into a topic, with op, mode, headers and time as they are, exactly once."""

    topic: Annotated[str, Meta(description="The topic to write to.", examples=["orders"])]
    key: Annotated[
        str,
        Meta(
            description="What order is kept by: namespace; identity, the row's as its reader gives"
            " it; none; or a field by dotted path. Unless it is namespace, the namespace goes into"
            " the header `namespace`.",
            examples=["namespace", "identity", "customer.id"],
        ),
    ] = "namespace"
    create_partitions: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Create the topic, with so many partitions, if it does not exist.",
            examples=[4],
            extra={"sample": True},
        ),
    ] = None
    hub: Annotated[
        str | None,
        Meta(
            description="The directory of the hub of the topic. Default: that of the pipeline.",
            examples=["../warehouse/tailrace-data"],
            extra={"path": True},
        ),
    ] = None

    keeps_record: ClassVar[bool] = True
    takes_controls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse names that no topic and no key can have."""
        check_name("topic", self.topic)
        KeyChoice.parse(self.key)

    def check(self) -> str:
        """Look for the topic, where its hub is known already."""
        if self.hub is None:
            return f"topic {self.topic} of the pipeline's own hub"
        hub = hub_at(self.hub)
        if self.topic in hub.topics():
            return f"topic {self.topic} of {self.hub} is there"
        if self.create_partitions is None:
            raise UnknownTopic(self.topic, self.hub, hub.topics())
        return f"topic {self.topic} of {self.hub} will be made"

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt: from now on older ones can write nothing."""
        hub = self._hub(attempt.open_hub)
        topic = self._topic(hub)
        if topic.view.definition.identity == log_of(attempt.stream):
            raise ConfigError(f"{self.topic} is the commit log of {attempt.writer} itself")
        # In another hub only the order of attempts counts: the writer's fence is not there.
        valid_while = {} if self.hub else {FENCES + attempt.fence: attempt.epoch}
        applied = Applied(hub.backend, attempt.writer, attempt.stream)
        return TopicSession(topic, KeyChoice.parse(self.key), attempt, applied, valid_while)

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets]:
        """What the hub of the topic says that the topic has."""
        return Applied(self._hub(lambda: hub).backend, writer, stream).load().ranges()

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """The logs of which the hub of the topic says that the topic has records."""
        holder = hub if self.hub is None else hub_at(self.hub)
        return frozenset() if holder is None else applied_logs(holder.backend.table, writer)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Let the hub of the topic say no longer that it has `start` and beyond.

        The records stay in the topic, as all records do, and come again behind them.
        """
        Applied(self._hub(lambda: hub).backend, writer, stream).forget(start)

    def _hub(self, own: Callable[[], Hub]) -> Hub:
        return own() if self.hub is None else hub_at(self.hub)

    def _topic(self, hub: Hub) -> Topic[Any]:
        try:
            return hub.topic(self.topic)
        except UnknownTopic:
            if self.create_partitions is None:
                raise
        with contextlib.suppress(TopicExists):
            return hub.create_topic(self.topic, partitions=self.create_partitions)
        return hub.topic(self.topic)
