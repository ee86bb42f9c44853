"""A topic as this process last saw it, and commits that follow its produce pointer.

Nobody asks the store where the pointer is before each push. The log refuses what comes behind a
seal, and that is when a view looks again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Transaction
from tailrace.errors import Busy, Conflict, Sealed, UnknownTopic
from tailrace.message import Range
from tailrace.topic.composite import (
    TOPICS,
    Definition,
    change_between,
    decode_definition,
    deletion,
)
from tailrace.topic.target import Target

SWITCHES_MAX: Final = 100
"""How often a commit follows the pointer, or a change starts again, before it gives up."""


class Stored(NamedTuple):
    """A definition, and the version of the store entry that holds it."""

    definition: Definition
    version: int


def find(backend: Backend, topic: str) -> Stored | None:
    """The definition of a topic, or None when there is no such topic."""
    entry = backend.store.get(TOPICS + topic)
    if entry is None or entry.value is None:
        return None
    return Stored(decode_definition(entry.value), entry.version)


def names(backend: Backend) -> list[str]:
    """The names of all topics, in order."""
    return [entry.key.removeprefix(TOPICS) for entry in backend.store.scan(TOPICS)]


class View:
    """A topic as last seen. May be shared by threads, and does no harm when it is stale."""

    __slots__ = ("_stored", "backend", "target", "topic")

    def __init__(self, backend: Backend, topic: str, stored: Stored) -> None:
        self.backend = backend
        self.topic = topic
        self._stored = stored
        self.target = Target.of(topic, *stored)

    @property
    def definition(self) -> Definition:
        """The definition as last seen."""
        return self._stored.definition

    def refresh(self) -> Stored:
        """Read the definition again; `UnknownTopic` when the topic is gone."""
        stored = find(self.backend, self.topic)
        if stored is None:
            raise UnknownTopic(self.topic, self.backend.name, names(self.backend))
        if stored.version > self._stored.version:
            self._stored = stored
            self.target = Target.of(self.topic, *stored)
        return stored

    def follow(self, sealed: Sealed) -> None:
        """Move on from a storage topic that is sealed; `Sealed` again when there is no next."""
        if self.target.storage <= sealed.storage:
            self.refresh()
        if self.target.storage <= sealed.storage:
            raise sealed

    def change(self, next_of: Callable[[Definition], Definition]) -> tuple[Definition, Definition]:
        """Store the next definition, its storage topics created and sealed; the old and the new.

        When another change comes between, `next_of` is asked again with what that one left. It may
        return its argument to leave all as it is.
        """
        for _ in range(SWITCHES_MAX):
            before, version = self.refresh()
            after = next_of(before)
            if after == before:
                return before, after
            try:
                self.backend.store.commit(change_between(self.topic, before, after, version))
            except Conflict:
                continue
            self.refresh()
            return before, after
        raise self._changed_too_often()

    def delete(self) -> Definition:
        """Delete the topic with its records; what it was."""
        for _ in range(SWITCHES_MAX):
            definition, version = self.refresh()
            with contextlib.suppress(Conflict):
                self.backend.store.commit(deletion(self.topic, definition, version))
                return definition
        raise self._changed_too_often()

    def _changed_too_often(self) -> Busy:
        times = f"{SWITCHES_MAX} times meanwhile"
        return Busy(f"topic {self.topic!r} was changed {times}", "try again later")


def commit_following(
    backend: Backend, views: Mapping[str, View], build: Callable[[], Transaction]
) -> list[Range]:
    """Commit what `build` makes of the views' targets; on `Sealed` follow and build anew.

    A transaction is refused whole, so what was refused goes to the new storage topic in the order
    it had.
    """
    for _ in range(SWITCHES_MAX):
        try:
            return backend.commit(build())
        except Sealed as sealed:
            views[sealed.topic].follow(sealed)
    raise Busy(
        f"{', '.join(views)} was switched {SWITCHES_MAX} times meanwhile", "push again later"
    )
