"""The definition of a group: its name and the topics that it consumes.

A `GroupDefinition` is a store entry ``group/NAME``, in JSON. One text may name a group and its
topics together: ``$shared/GROUP/FILTER`` or ``$queue/GROUP/FILTER``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend
from tailrace.errors import InvalidName, InvalidValue, UnknownGroup, UnknownTopic
from tailrace.topic.composite import TOPICS, check_name, decode_definition
from tailrace.topic.internal_topics import is_internal
from tailrace.topic.view import StoredDefinition, find, names

GROUPS: Final = "group/"
"""Store entries under this prefix are the definitions of groups."""

LEADERS: Final = "group-leader/"
"""Store entries under this prefix are the leaders of groups; the version is the term."""

GRANTS: Final = "group-grant/"
"""Store entries under this prefix are the grants of units; the version is the epoch."""

_CONSUMER: Final = "group:"
_SHARED: Final = ("$shared", "$queue")
_FILTER_FORM: Final = "a topic, or a pattern such as orders.* in which * matches any characters"


class GroupDefinition(msgspec.Struct, frozen=True):
    """A group without its name.

    `start` is where the group began, as `format_start` writes it. `identity` differs from that of
    an earlier group of the same name.
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
    """The topics of a group: one topic by its name, or all that match a pattern with ``*``.

    A pattern never matches internal topics of Tailrace.
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
        """True if the filter matches a topic."""
        if self.exact:
            return topic == self.text
        return not is_internal(topic) and self._pattern.fullmatch(topic) is not None


class Shared(NamedTuple):
    """A group and a filter that one text named."""

    group: str
    filter: str


def parse_shared(text: str) -> Shared | None:
    """Parse ``$shared/GROUP/FILTER`` or ``$queue/GROUP/FILTER``.

    Returns None for text that does not start with ``$``. Raises `InvalidValue` or `InvalidName` for
    other text that has not this form.
    """
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
    """Return the name under which a group has a ledger."""
    return f"{_CONSUMER}{group}"


def group_of_consumer(consumer: str) -> str | None:
    """Return the group that has a ledger under a name; None if the ledger is not a group's."""
    return consumer.removeprefix(_CONSUMER) if consumer.startswith(_CONSUMER) else None


def unit_fence(group: str, unit: str) -> str:
    """Return the fence with which the owner of a unit writes."""
    return f"group/{group}/{unit}"


def grant_key(group: str, unit: str) -> str:
    """Return the key of a unit's grant."""
    return f"{GRANTS}{group}/{unit}"


def find_group(backend: Backend, name: str) -> StoredGroup | None:
    """Return the definition of a group; None if it does not exist."""
    entry = backend.store.get(GROUPS + name)
    if entry is None or entry.value is None:
        return None
    return StoredGroup(msgspec.json.decode(entry.value, type=GroupDefinition), entry.version)


def read_group(backend: Backend, name: str) -> StoredGroup:
    """Return the definition of a group. Raises `UnknownGroup`."""
    found = find_group(backend, name)
    if found is None:
        raise UnknownGroup(name, backend.name, group_names(backend))
    return found


def check_group(backend: Backend, name: str) -> None:
    """Raise `UnknownGroup` if the group does not exist, or `UnknownTopic` if it consumes one topic
    by name and that topic does not exist."""
    topics = TopicFilter(read_group(backend, name).definition.filter)
    if topics.exact and not matching_topics(backend, topics):
        raise UnknownTopic(topics.text, backend.name, names(backend))


def group_names(backend: Backend) -> list[str]:
    """Return the names of all groups, sorted."""
    return [entry.key.removeprefix(GROUPS) for entry in backend.store.scan(GROUPS)]


def matching_topics(backend: Backend, topics: TopicFilter) -> dict[str, StoredDefinition]:
    """Return the existing topics that a filter matches, by name."""
    if topics.exact:
        stored = find(backend, topics.text)
        return {} if stored is None else {topics.text: stored}
    prefix = TOPICS + topics.text.partition("*")[0]
    found = {}
    for key, value, version in backend.store.scan(prefix):
        topic = key.removeprefix(TOPICS)
        if value is not None and topics.matches(topic):
            found[topic] = StoredDefinition(decode_definition(value), version)
    return found
