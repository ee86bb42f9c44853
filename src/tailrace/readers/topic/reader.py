"""The options of the `topic` reader, and its check before a run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from tailrace.amount import format_amount
from tailrace.backend.contract import Bounds
from tailrace.errors import InvalidValue, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub
from tailrace.hub.topic import Topic
from tailrace.log.columns import records_of
from tailrace.log.control import messages_of
from tailrace.message import Partition
from tailrace.payload import is_json
from tailrace.readers.topic.session import TopicReaderSession
from tailrace.settings import HubSettings
from tailrace.source.reader import Preview, Reader, Until
from tailrace.topic.composite import check_name
from tailrace.topic.internal_topics import check_new_topic
from tailrace.topic.lineage import Stream
from tailrace.topic.open_streams import held_streams
from tailrace.topic.view import find

_PREVIEW_MAX: Final = 5
"""Number of documents in a preview."""

_PREVIEW_BYTES: Final = 64 << 10
"""How many bytes of each partition are searched for documents."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class TopicReader(Reader, frozen=True):
    """Reads a topic, also of another hub: first its messages, then new ones, in order per key."""

    topic: Annotated[str, Meta(description="The topic to read.", examples=["orders"])]
    hub: Annotated[
        str,
        Meta(
            description="The directory of the topic's hub, which is opened read-only. It may be the"
            " hub of the pipeline.",
            examples=["../shop/tailrace-data"],
            extra={"path": True},
        ),
    ]
    namespace: Annotated[
        str | None,
        Meta(
            description="The namespace of all rows. Default: the name of the topic.",
            examples=["orders"],
        ),
    ] = None
    into: Annotated[
        str | None,
        Meta(
            description="Push the messages unchanged to this topic of the pipeline's hub, and none"
            " to the commit log. The topic must exist.",
            examples=["orders"],
        ),
    ] = None

    def __post_init__(self) -> None:
        check_name("topic", self.topic)
        if not self.hub or "\0" in self.hub:
            raise InvalidValue("hub", self.hub, "the directory of a hub")
        if self.namespace == "":
            raise InvalidValue("namespace", self.namespace, "a name")
        if self.into is not None:
            check_new_topic(self.into)

    def check(self) -> Preview:
        """Check that the topic exists and has JSON values, unless they are pushed on; preview it.

        A topic without messages is right: they may come later.
        """
        with self._open_hub() as hub:
            topic = self._open_topic(hub)
            definition = topic.view.definition
            held = held_streams(hub.backend.log, topic.name, definition)
            partitions = [Partition(topic.name, *stream) for stream in sorted(held)]
            count = sum(hub.backend.log.amount(each).records for each in partitions)
            documents = [
                (self._namespace, document)
                for document, _ in zip(_documents(topic, held), range(_PREVIEW_MAX), strict=False)
            ]
        found = f"topic {self.topic} of {self.hub}"
        shape = format_amount(definition.shape.partitions, "partition")
        sentence = f"{found}: {shape}, {format_amount(count, 'message')}"
        return Preview(sentence, documents)

    def check_hub(self, hub: Hub, appends_to: Collection[str]) -> None:
        """Refuse a loop, and a topic `into` that does not exist or has other values."""
        if self._is_at(hub) and self.topic in {self.into, *appends_to}:
            raise InvalidValue(
                "topic",
                self.topic,
                "a topic that the pipeline does not append to itself",
                problem=f"topic {self.topic!r} would be read into itself, without end",
            )
        if self.into is None:
            return
        stored = find(hub.backend, self.into)
        if stored is None:
            raise UnknownTopic(self.into, hub.backend.name, hub.topics())
        into = stored.definition.content_type
        with self._open_hub() as other:
            own = self._open_topic(other).view.definition.content_type
        if into != own:
            problem = f"topic {self.topic!r} has values of {own}, and topic {self.into!r} of {into}"
            raise InvalidValue("into", self.into, f"a topic of {own}", problem=problem)

    def open(self, until: Until) -> TopicReaderSession:
        """Open the reader; see `Reader.open`."""
        hub = self._open_hub()
        try:
            topic = self._open_topic(hub)
            return TopicReaderSession(hub, topic, self._namespace, self.into, until)
        except BaseException:
            hub.close()
            raise

    @property
    def _namespace(self) -> str:
        return self.namespace or self.topic

    def _open_hub(self) -> Hub:
        # The settings of this process are those of another hub.
        return open_hub(self.hub, mode="ro", settings=HubSettings())

    def _open_topic(self, hub: Hub) -> Topic[Any]:
        try:
            topic = hub.topic(self.topic, any_type=True)
        except UnknownTopic as error:
            name = hub.backend.name
            raise UnknownTopic(self.topic, name, error.known, directory=self.hub) from error
        content_type = topic.view.definition.content_type
        if self.into is None and not is_json(content_type):
            raise InvalidValue(
                "topic",
                self.topic,
                "a topic of JSON values, whose rows the commit log can have",
                "to push its messages to a topic of the pipeline's hub, set into",
                problem=f"topic {self.topic!r} of {self.hub} has values of {content_type}",
            )
        return topic

    def _is_at(self, hub: Hub) -> bool:
        try:
            return os.path.samefile(self.hub, hub.backend.name)
        except OSError:
            return False


def _documents(topic: Topic[Any], held: dict[Stream, Bounds]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects at the beginning of each partition."""
    log = topic.view.backend.log
    for stream in sorted(held):
        start, end, _ = held[stream]
        if start == end:
            continue
        chunk = log.read(Partition(topic.name, *stream), start, _PREVIEW_BYTES, end)
        for record in records_of(messages_of(chunk.records)):
            try:
                yield _decode(record.value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
