"""What a group is: a name, and the topics it consumes.

A `GroupDefinition` is one entry of the store, in JSON, under ``group/NAME``. A group and its topics
may also be named as one, ``$shared/GROUP/FILTER`` or ``$queue/GROUP/FILTER``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend
from tailrace.errors import InvalidName, InvalidValue, UnknownGroup, UnknownTopic
from tailrace.topic.composite import TOPICS, check_name, decode_definition
from tailrace.topic.own import OWN
from tailrace.topic.view import Stored, find, names

GROUPS: Final = "group/"
"""Store entries under this prefix are the definitions of groups."""

LEADERS: Final = "group-leader/"
"""Store entries under this prefix say which process leads a group; the version is its term."""

GRANTS: Final = "group-grant/"
"""Store entries under this prefix say who has been granted a unit; the version is the epoch."""

_SHARED: Final = ("$shared", "$queue")
_FILTER_FORM: Final = "a topic, or a pattern such as orders.* in which * is any characters"


class GroupDefinition(msgspec.Struct, frozen=True):
    """A group without its name.

    `start` is where it began, as `tailrace.group.starting` writes it. `identity` tells it from an
    earlier group of the same name.
    """

    filter: str
    start: str
    identity: str
    created_ms: int


class StoredGroup(NamedTuple):
    """A definition, and the version of the store entry that holds it."""

    definition: GroupDefinition
    version: int


class TopicFilter:
    """The topics of a group: one by its name, or all that match a pattern with ``*``.

    A pattern never matches the topics that Tailrace keeps for itself.
    """

    __slots__ = ("_pattern", "exact", "text")

    def __init__(self, text: str) -> None:
        try:
            check_name("topic", text.replace("*", "_"))
        except InvalidName:
            raise InvalidValue("topic filter", text, _FILTER_FORM) from None
        self.text = text
        self.exact = "*" not in text
        self._pattern = re.compile(".*".join(map(re.escape, text.split("*"))))

    def __repr__(self) -> str:
        return f"<TopicFilter {self.text}>"

    def matches(self, topic: str) -> bool:
        """Whether a topic is one of them."""
        if self.exact:
            return topic == self.text
        return not topic.startswith(OWN) and self._pattern.fullmatch(topic) is not None


class Shared(NamedTuple):
    """A group and a filter that were named as one."""

    group: str
    filter: str


def parse_shared(text: str) -> Shared | None:
    """Read ``$shared/GROUP/FILTER`` or ``$queue/GROUP/FILTER``; None for what is neither."""
    if not isinstance(text, str):
        raise InvalidValue("topics", text, _FILTER_FORM)
    if not text.startswith("$"):
        return None
    kind, *names = text.split("/")
    if kind not in _SHARED or len(names) != 2:
        raise InvalidValue("group and topic", text, "$shared/GROUP/FILTER or $queue/GROUP/FILTER")
    group, topics = names
    return Shared(check_name("group", group), TopicFilter(topics).text)


def consumer_name(group: str) -> str:
    """The group as a consumer with a ledger."""
    return f"group:{group}"


def unit_fence(group: str, unit: str) -> str:
    """The fence that whoever owns a unit writes with."""
    return f"group/{group}/{unit}"


def grant_key(group: str, unit: str) -> str:
    """The store entry of a unit's grant."""
    return f"{GRANTS}{group}/{unit}"


def find_group(backend: Backend, name: str) -> StoredGroup | None:
    """The definition of a group, or None when there is no such group."""
    entry = backend.store.get(GROUPS + name)
    if entry is None or entry.value is None:
        return None
    return StoredGroup(msgspec.json.decode(entry.value, type=GroupDefinition), entry.version)


def read_group(backend: Backend, name: str) -> StoredGroup:
    """The definition of a group; `UnknownGroup` when there is no such group."""
    found = find_group(backend, name)
    if found is None:
        raise UnknownGroup(name, backend.name, group_names(backend))
    return found


def check_group(backend: Backend, name: str) -> None:
    """Raise what makes consuming in a group pointless: `UnknownGroup`, or `UnknownTopic` when it
    shares one topic and that is not there."""
    topics = TopicFilter(read_group(backend, name).definition.filter)
    if topics.exact and not matching_topics(backend, topics):
        raise UnknownTopic(topics.text, backend.name, names(backend))


def group_names(backend: Backend) -> list[str]:
    """The names of all groups, in order."""
    return [entry.key.removeprefix(GROUPS) for entry in backend.store.scan(GROUPS)]


def matching_topics(backend: Backend, topics: TopicFilter) -> dict[str, Stored]:
    """The topics that there are of a filter, by name."""
    if topics.exact:
        stored = find(backend, topics.text)
        return {} if stored is None else {topics.text: stored}
    prefix = TOPICS + topics.text.partition("*")[0]
    found = {}
    for key, value, version in backend.store.scan(prefix):
        topic = key.removeprefix(TOPICS)
        if value is not None and topics.matches(topic):
            found[topic] = Stored(decode_definition(value), version)
    return found
