"""A topic as this process last read it, and commits that follow its produce pointer.

A push does not read the pointer from the store. The log refuses an append to a sealed storage
topic, and only then the view reads the definition again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from tailrace.backend.contract import Backend, Transaction
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import Busy, ReadOnlyHub, Sealed, UnknownTopic
from tailrace.message import Range
from tailrace.payload import ValueType
from tailrace.topic.composite import (
    TOPICS,
    Definition,
    change_between,
    decode_definition,
    deletion,
)
from tailrace.topic.push_reporter import PushReporter, pushes_to
from tailrace.topic.target import Target

T = TypeVar("T")

SWITCHES_MAX: Final = 100
"""The number of switches that one commit follows before it is `Busy`."""


class StoredDefinition(NamedTuple):
    """A definition, and the version of its store entry."""

    definition: Definition
    version: int


def find(backend: Backend, topic: str) -> StoredDefinition | None:
    """Return the definition of a topic, or None if there is no such topic."""
    entry = backend.store.get(TOPICS + topic)
    if entry is None or entry.value is None:
        return None
    return StoredDefinition(decode_definition(entry.value), entry.version)


def names(backend: Backend) -> list[str]:
    """Return the names of all topics, in order."""
    return [entry.key.removeprefix(TOPICS) for entry in backend.store.scan(TOPICS)]


class View:
    """A topic as last read. May be shared by threads; a stale view is safe to use."""

    __slots__ = ("_pushes", "_stored", "backend", "target", "topic")

    def __init__(self, backend: Backend, topic: str, stored: StoredDefinition) -> None:
        self.backend = backend
        self.topic = topic
        self._stored = stored
        self._pushes: PushReporter | None = None
        self.target = Target.of(topic, *stored)

    @property
    def pushes(self) -> PushReporter:
        """What reports the pushes of this process to the topic."""
        if self._pushes is None:
            self._pushes = pushes_to(self.backend, self.topic)
        return self._pushes

    @property
    def definition(self) -> Definition:
        """The definition as last read."""
        return self._stored.definition

    def refresh(self) -> StoredDefinition:
        """Read the definition again; `UnknownTopic` if the topic was deleted."""
        stored = find(self.backend, self.topic)
        if stored is None:
            raise UnknownTopic(self.topic, self.backend.name, names(self.backend))
        if stored.version > self._stored.version:
            self._stored = stored
            self.target = Target.of(self.topic, *stored)
        return stored

    def follow(self, sealed: Sealed) -> None:
        """Move on from a sealed storage topic; raises `Sealed` again if there is no next one."""
        if self.target.storage <= sealed.storage:
            self.refresh()
        if self.target.storage <= sealed.storage:
            raise sealed

    def follow_deletion(self) -> bool:
        """Move on from a deleted storage topic. False, with nothing changed, if pushes go to one
        that exists, or to another topic of the name."""
        stored = find(self.backend, self.topic)
        if stored is None or stored.definition.identity != self.definition.identity:
            return False
        if self.target.storage not in stored.definition.deleted:
            return False
        self.refresh()
        return True

    def change(self, next_of: Callable[[Definition], Definition]) -> tuple[Definition, Definition]:
        """Store the next definition, create and seal its storage topics; return the old and the
        new definition.

        `next_of` is called again if another process changes the topic meanwhile. It may return its
        argument to change nothing. `Busy` after too many such changes.
        """

        def attempt() -> tuple[Definition, Definition]:
            before, version = self.refresh()
            after = next_of(before)
            if after != before:
                self.backend.store.commit(change_between(self.topic, before, after, version))
                self.refresh()
            return before, after

        return retry_on_conflict(attempt, f"topic {self.topic!r}")

    def agree_on(self, value_type: ValueType | None) -> None:
        """Raise `TopicTypeMismatch` if a type does not agree with the topic's.

        A type that adds fields with a default is stored as the topic's type, unless the hub is open
        read-only.
        """
        if value_type is None:
            return
        before = self.definition
        if before.with_type(self.topic, value_type) is not before:
            with contextlib.suppress(ReadOnlyHub):
                self.change(lambda now: now.with_type(self.topic, value_type))

    def delete(self) -> Definition:
        """Delete the topic with its records, and return its last definition."""

        def attempt() -> Definition:
            definition, version = self.refresh()
            self.backend.store.commit(deletion(self.topic, definition, version))
            return definition

        return retry_on_conflict(attempt, f"topic {self.topic!r}")


def commit_following(
    backend: Backend, views: Mapping[str, View], build: Callable[[], Transaction]
) -> list[Range]:
    """Commit the transaction that `build` makes for the views' targets; on `Sealed`, follow the
    pointer and build it again.

    A transaction is refused as a whole, so its records go to the new storage topic in their order.
    """
    return follow_switches(views, lambda: backend.commit(build()))


def follow_switches(views: Mapping[str, View], commit: Callable[[], T]) -> T:
    """Return the result of a commit to the views' targets; on `Sealed`, follow the pointer of the
    topic and commit again, and also if the storage topic was deleted since. `Sealed` and
    `UnknownTopic` of another topic are raised."""
    for _ in range(SWITCHES_MAX):
        try:
            return commit()
        except Sealed as sealed:
            if sealed.topic not in views:
                raise
            views[sealed.topic].follow(sealed)
        except UnknownTopic:
            if not any(view.follow_deletion() for view in views.values()):
                raise
    raise Busy(f"{', '.join(views)} was switched {SWITCHES_MAX} times in a row", "push again later")
