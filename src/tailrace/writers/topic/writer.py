"""The `topic` writer: appends records to a topic, each exactly once, in order."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from tailrace.backend.contract import FENCES
from tailrace.errors import (
    BackendUnavailable,
    ConfigError,
    HubClosed,
    TopicExists,
    UnknownTopic,
)
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, LocalSink, Writer, WriterSession, log_identity
from tailrace.spark.hubs import close_hub_at, hub_at
from tailrace.topic.composite import check_name
from tailrace.writers.topic.applied import AppliedOffsets, applied_logs
from tailrace.writers.topic.keys import KeyChoice
from tailrace.writers.topic.session import TopicSession


class TopicWriter(Writer, frozen=True):
    """Appends records to a topic, exactly once, with their op, mode, headers and timestamp."""

    topic: Annotated[str, Meta(description="The topic to write to.", examples=["orders"])]
    key: Annotated[
        str,
        Meta(
            description="The key of the records: namespace; identity, as the reader sets it; none;"
            " or the dotted path of a field. Records with the same key keep their order. With"
            " another key than namespace, the header `namespace` has the namespace. A topic with"
            " an order_by makes the keys itself.",
            examples=["namespace", "identity", "customer.id"],
        ),
    ] = "namespace"
    create_partitions: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Create the topic with this number of partitions if it does not exist.",
            examples=[4],
            extra={"sample": True},
        ),
    ] = None
    hub: Annotated[
        str | None,
        Meta(
            description="The directory of the topic's hub. Default: the hub of the pipeline.",
            examples=["../warehouse/tailrace-data"],
            extra={"path": True},
        ),
    ] = None
    control: Annotated[
        bool,
        Meta(
            description="Append control records too, such as the end of a copy. Consumers of the"
            " topic receive them only with control=True.",
        ),
    ] = False

    stores_offsets: ClassVar[bool] = True

    @property
    def wants_controls(self) -> bool:
        """True if the option `control` is on."""
        return self.control

    def __post_init__(self) -> None:
        """Check the topic's name and the key."""
        check_name("topic", self.topic)
        KeyChoice.parse(self.key)

    def check(self) -> str:
        """Check that the topic exists or will be created, if the option `hub` names its hub."""
        if self.hub is None:
            return f"topic {self.topic} in the pipeline's hub"
        with _reopening(self.hub):
            topics = _other_hub(self.hub).topics()
        if self.topic in topics:
            return f"topic {self.topic} in {self.hub} exists"
        if self.create_partitions is None:
            raise UnknownTopic(self.topic, self.hub, topics)
        return f"topic {self.topic} in {self.hub} will be created"

    def local_sink(self, hub: Hub) -> LocalSink | None:
        """Return the directory of the topic's hub, which only processes of one host may write."""
        return LocalSink(os.path.abspath(self.hub or hub.backend.name), one_host=True)

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt, and fence all older ones."""
        with _reopening(self.hub):
            return self._open(attempt)

    def _open(self, attempt: Attempt) -> WriterSession:
        hub = self._hub(attempt.open_hub)
        topic = self._topic(hub)
        if topic.view.definition.identity == log_identity(attempt.stream):
            raise ConfigError(
                f"topic {self.topic} is the commit log that {attempt.writer} reads",
                "name another topic",
            )
        # Another hub does not have the writer's fence, so only the order of attempts counts there.
        valid_while = {} if self.hub else {FENCES + attempt.fence: attempt.epoch}
        applied = AppliedOffsets(hub.backend, attempt.writer, attempt.stream)
        key = KeyChoice.of_topic(self.key, self.topic, topic.view.definition.order_by)
        reopening = partial(_reopening, self.hub)
        return TopicSession(topic, key, attempt, applied, valid_while, reopening)

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets]:
        """Return the offsets that the topic has, by the record in its hub."""
        with _reopening(self.hub):
            return AppliedOffsets(self._hub(lambda: hub).backend, writer, stream).load().ranges()

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """Return the commit logs whose records the topic has, by the record in its hub."""
        with _reopening(self.hub):
            holder = hub if self.hub is None else _other_hub(self.hub)
            return frozenset() if holder is None else applied_logs(holder.backend.table, writer)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Remove `start` and later offsets from the record in the topic's hub.

        The records stay in the topic; the writer appends them again after those.
        """
        with _reopening(self.hub):
            AppliedOffsets(self._hub(lambda: hub).backend, writer, stream).forget(start)

    def _hub(self, own: Callable[[], Hub]) -> Hub:
        return own() if self.hub is None else _other_hub(self.hub)

    def _topic(self, hub: Hub) -> Topic[Any]:
        try:
            return hub.topic(self.topic)
        except UnknownTopic:
            if self.create_partitions is None:
                raise
        with contextlib.suppress(TopicExists):
            return hub.create_topic(self.topic, partitions=self.create_partitions)
        return hub.topic(self.topic)


@contextmanager
def _reopening(directory: str | None) -> Iterator[None]:
    """Let the next attempt open the hub in a directory again if it closed itself.

    It does so after a failed sync. The hub of the pipeline, None, is opened by the pipeline.
    """
    try:
        yield
    except HubClosed as closed:
        if directory is None:
            raise
        close_hub_at(directory)
        raise BackendUnavailable(str(closed)) from closed


def _other_hub(directory: str) -> Hub:
    """Return the hub in a directory; `BackendUnavailable` if there is none."""
    if not os.path.exists(os.path.join(directory, "hub.db")):
        raise BackendUnavailable(
            f"no hub in {directory}",
            "mount its disk, or create it:"
            f" tailrace --hub {shlex.quote(directory)} topic create NAME",
        )
    return hub_at(directory)
