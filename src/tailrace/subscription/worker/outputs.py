"""What a handler pushes by ``delivery.tx``, and the topics that it pushes to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from tailrace.backend.contract import Backend
from tailrace.errors import Error, InvalidValue, MessageTooLarge
from tailrace.log.record import Record
from tailrace.subscription.shard.commit.outputs import Pushed, PushedBatch, PushedRecord
from tailrace.subscription.shard.turn import Turn
from tailrace.topic.internal_topics import check_not_queue
from tailrace.topic.record_builder import Headers, Key, RecordBuilder, Time
from tailrace.topic.view import View

OUTPUT_BYTES_MAX: Final = 16 << 20
"""The most bytes that one call may push, unless it pushes one message or one batch alone."""


class PushTarget(Protocol):
    """A topic that a handler pushes to."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def view(self) -> View:
        """Its view."""

    @property
    def builder(self) -> RecordBuilder[Any]:
        """What makes its records."""


FindTopic: TypeAlias = Callable[[str], PushTarget]


class OutputTopics:
    """The topics that the handler of a worker has pushed to. Any thread may use it."""

    def __init__(self, backend: Backend, find_topic: FindTopic) -> None:
        self._backend = backend
        self._find_topic = find_topic
        self._mutex = threading.Lock()
        self._topics: dict[str, PushTarget] = {}

    def find(self, topic: str | PushTarget) -> PushTarget:
        """Return a topic; `UnknownTopic` if there is none of that name, and `InvalidValue` if it is
        one of another hub. A topic that is given decides how its records are made."""
        if not isinstance(topic, str):
            if not hasattr(topic, "builder"):
                raise InvalidValue("topic", topic, "a name or a Topic")
            if topic.view.backend is not self._backend:
                raise InvalidValue("topic", topic, f"a topic of {self._backend.name}")
            with self._mutex:
                self._topics.setdefault(topic.name, topic)
            return topic
        with self._mutex:
            found = self._topics.get(topic)
        if found is not None:
            return found
        made = self._find_topic(topic)
        with self._mutex:
            return self._topics.setdefault(made.name, made)

    def view(self, name: str) -> View:
        """Return the view of a topic that was pushed to."""
        return self.find(name).view

    def forget(self) -> None:
        """Look every topic up again: one of them was deleted."""
        with self._mutex:
            self._topics.clear()


class DeliveryTransaction:
    """The pushes of one call, stored in the commit that acknowledges its message, or not at all."""

    def __init__(self, turn: Turn, topics: OutputTopics) -> None:
        self._turn = turn
        self._topics = topics
        self._mutex = threading.Lock()
        self._ended = False
        self._size_bytes = 0

    def push(
        self,
        topic: str | PushTarget,
        value: object,
        *,
        key: Key = None,
        headers: Headers = None,
        timestamp: Time = None,
    ) -> None:
        """Push a message when the handler has returned and the message of its call is acknowledged,
        in one commit.

        An invalid message or topic raises here. If the call fails, nothing is pushed.
        """
        found = self._topics.find(topic)
        check_not_queue(found.name)
        self.push_record(found.name, found.builder.record(value, key, headers, timestamp))

    def push_many(self, topic: str | PushTarget, messages: Iterable[tuple[Key, Any]]) -> None:
        """Push messages, given as pairs of key and value, in this order. See `push`."""
        found = self._topics.find(topic)
        check_not_queue(found.name)
        pairs = messages if isinstance(messages, list) else list(messages)
        if pairs:
            self._add(PushedBatch(found.name, found.builder.pairs(pairs)))

    def push_record(self, topic: str, record: Record) -> None:
        """Push a record as it is, which may have reserved headers. For Tailrace itself."""
        self._add(PushedRecord(topic, record))

    def _add(self, output: Pushed) -> None:
        with self._mutex:
            if self._ended:
                raise Error("the call has ended, so nothing more is pushed", "push before it ends")
            alone = not self._size_bytes
            self._size_bytes += output.size_bytes
            if self._size_bytes > OUTPUT_BYTES_MAX and not alone:
                raise MessageTooLarge(
                    "what one call pushes", self._size_bytes, OUTPUT_BYTES_MAX, "a fixed limit"
                )
            self._turn.outputs.append(output)

    def end(self) -> None:
        """Refuse further pushes."""
        with self._mutex:
            self._ended = True
