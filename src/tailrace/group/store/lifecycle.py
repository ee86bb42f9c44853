"""Creation and deletion of groups.

Every entry of a group contains the group's name, and an interrupted deletion leaves entries behind.
The group's own fence protects a new group of the same name from the late steps of such a deletion:
creation and deletion raise the fence, each expects the fence as it was when it listed the
leftovers, and late removals are written under it.
"""

from __future__ import annotations

import secrets

import msgspec

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Fence,
)
from tailrace.backend.retry import retry_on_conflict
from tailrace.backend.table_scan import clear_table
from tailrace.clock import Clock
from tailrace.delivery.failed_attempts import failed_table
from tailrace.delivery.handed_out import handed_out_table
from tailrace.errors import Conflict, Fenced, GroupExists, InvalidValue, UnknownTopic
from tailrace.group.store.definition import (
    GROUPS,
    LEADERS,
    GroupDefinition,
    StoredGroup,
    TopicFilter,
    consumer_name,
    find_group,
    grant_key,
    matching_topics,
    read_group,
    unit_fence,
)
from tailrace.group.store.presence import members_prefix
from tailrace.group.store.seek_steps import (
    SeekOrder,
    find_seeks,
    finish_pending,
    pending_change,
    seek_fence,
    seek_key,
)
from tailrace.group.store.start import Start, StartLike, format_start, parse_start, place_start
from tailrace.topic.composite import check_name, check_new_name
from tailrace.topic.consumers import consumer_key
from tailrace.topic.ledger import ledger_table
from tailrace.topic.view import names


def open_group(
    backend: Backend, name: str, filter: str, start: StartLike, clock: Clock
) -> StoredGroup:
    """Open a group; create it if it does not exist.

    A new group starts at `start` in every topic that exists now, all in one commit; it starts at
    the first record of topics that are created later. An existing group keeps its progress. Raises
    `GroupExists` if the group consumes other topics, and `UnknownTopic` if a new group names a
    topic that does not exist.
    """
    check_name("group", name)
    topics, begin = TopicFilter(filter), parse_start(start)

    def attempt() -> StoredGroup | None:
        stored = find_group(backend, name)
        if stored is None:
            check_new_name("group", name)
            stored = _create(backend, name, topics, begin, clock)
        if stored is not None and stored.definition.filter != topics.text:
            raise GroupExists(name, stored.definition.filter, topics.text)
        return stored

    return retry_on_conflict(attempt, f"group {name!r}")


def delete_group(backend: Backend, name: str) -> None:
    """Delete a group with its progress, and fence its consumers.

    Raises `UnknownGroup`. An interrupted deletion may leave unused entries; creating a group of the
    same name removes them.
    """

    def attempt() -> int:
        stored = read_group(backend, name)
        writes = {GROUPS + name: None, **_belongings(backend, name), _own_fence(name): b""}
        return backend.store.commit(Change({GROUPS + name: stored.version}, writes))

    _remove_rest(backend, name, retry_on_conflict(attempt, f"group {name!r}"))


def _create(
    backend: Backend, name: str, topics: TopicFilter, start: Start, clock: Clock
) -> StoredGroup | None:
    """Create a group; None if a concurrent change prevented it."""
    fence = backend.store.get(_own_fence(name))
    found = matching_topics(backend, topics)
    if topics.exact and not found:
        raise UnknownTopic(topics.text, backend.name, names(backend))
    if isinstance(start, tuple):
        for position in start:
            if not topics.matches(position.topic):
                raise InvalidValue("start", str(position), f"a position in {topics.text}")
    target = format_start(start)
    orders = {}
    for topic, stored in found.items():
        try:
            marks = place_start(backend.log, topic, stored.definition, start)
        except UnknownTopic:
            return None  # The topic was deleted meanwhile.
        orders[topic] = SeekOrder(stored, None, target, marks)
    identity = secrets.token_hex(8)
    definition = GroupDefinition(topics.text, target, identity, clock.now_ms())
    leftovers = _belongings(backend, name)
    change = pending_change(backend, name, 0, orders)
    # Leftovers of an earlier group of that name are overwritten, whatever their version is.
    kept = {key: version for key, version in change.expect.items() if key not in leftovers}
    expect = kept | {_own_fence(name): 0 if fence is None else fence.version}
    made = {GROUPS + name: msgspec.json.encode(definition), _own_fence(name): b""}
    try:
        version = backend.store.commit(Change(expect, {**leftovers, **change.writes, **made}))
    except Conflict:
        return None
    for topic in orders:
        finish_pending(backend, name, topic)
    return StoredGroup(definition, version)


def _remove_rest(backend: Backend, name: str, epoch: int) -> None:
    """Remove entries written during the deletion, then those in tables. Stops if there is a new
    group of the same name, whose creation has removed them."""
    if rest := _belongings(backend, name):
        try:
            backend.store.commit(Change({_own_fence(name): epoch}, rest))
        except Conflict:
            return
    fence = Fence(_own_fence(name).removeprefix(FENCES), epoch)
    for table in (ledger_table(consumer_name(name)), handed_out_table(name), failed_table(name)):
        try:
            clear_table(backend, table, fence)
        except Fenced:
            return


def _belongings(backend: Backend, name: str) -> dict[str, bytes | None]:
    """Return the removal of all store entries of a group, except its definition and own fence."""
    topics = find_seeks(backend, name)
    prefixes = (
        grant_key(name, ""),
        seek_key(name, ""),
        members_prefix(name),
        FENCES + unit_fence(name, ""),
        FENCES + seek_fence(name, ""),
    )
    keys = [entry.key for prefix in prefixes for entry in backend.store.scan(prefix)]
    keys += [consumer_key(topic, consumer_name(name)) for topic in topics]
    if backend.store.get(LEADERS + name) is not None:
        keys.append(LEADERS + name)
    return dict.fromkeys(keys)


def _own_fence(name: str) -> str:
    return f"{FENCES}group/{name}"
