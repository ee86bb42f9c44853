"""A topic in one hub, and a source in another that reads it."""

from __future__ import annotations

from typing import Any

from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.readers.topic.session import TopicReaderSession
from tailrace.source.reader import Reader, Until
from tailrace.source.run import SourceRun
from tailrace.testing import MemoryBackend
from tests.support.topics import all_messages


class LastingBackend(MemoryBackend):
    """A hub in memory that outlives the sessions that close it."""

    def close(self) -> None:
        """Stay open."""


class MemoryTopicReader(Reader, frozen=True):
    """The `topic` reader for a hub in memory."""

    hub: Any
    topic: str = "orders"
    into: str | None = None

    def open(self, until: Until) -> TopicReaderSession:
        topic = self.hub.topic(self.topic, any_type=True)
        return TopicReaderSession(self.hub, topic, self.topic, self.into, until)


class TopicSource:
    """A source `s` that reads a topic into a hub of its own, run after run."""

    def __init__(
        self, reader: Reader, partitions: int = 1, backend: MemoryBackend | None = None
    ) -> None:
        self.reader = reader
        self.hub = Hub.from_backend(backend or MemoryBackend())
        self.log = self.hub.create_topic("log", partitions=partitions)
        self.letters = self.hub.create_topic("letters", partitions=1)

    def begin(self, until: Until = Until.NOW) -> SourceRun:
        """Begin a run."""
        return SourceRun(self.hub, "s", self.reader, self.log, self.letters, until)

    def finish(self) -> SourceRun:
        """Run until now, and return the run."""
        with self.begin() as run:
            while not run.done:
                run.step()
        return run


def store_all(run: SourceRun) -> None:
    """Read and store everything that there is now."""
    while run.step():
        pass


def values_by_key(topic: Topic[Any], header: str | None = None) -> dict[Any, list[Any]]:
    """Return the values of each key in their order. With `header`, the key is in that header."""
    found: dict[Any, list[Any]] = {}
    for message in all_messages(topic):
        key: Any = message.key
        if header is not None:
            key = message.headers[header].decode() if header in message.headers else None
        found.setdefault(key, []).append(message.value)
    return found
