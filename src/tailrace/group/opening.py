"""Groups that are made, and that go.

Whatever a group has is named after it, and a deleted one leaves things behind if its deletion is
cut short. The group's own fence orders this: making and deleting a group raise it, each expects it
as it was when it looked for what is left, and what is removed late is removed under it.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Fence,
    TableKey,
    Transaction,
)
from tailrace.clock import Clock
from tailrace.errors import Busy, Conflict, Fenced, GroupExists, InvalidValue, UnknownTopic
from tailrace.group.definition import (
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
from tailrace.group.failed import failed_prefix
from tailrace.group.members import members_prefix
from tailrace.group.reach import reach_table
from tailrace.group.seeking import (
    Order,
    find_seeks,
    finish_pending,
    pending_change,
    seek_fence,
    seek_key,
)
from tailrace.group.starting import Start, StartLike, format_start, parse_start, place_start
from tailrace.topic.composite import check_name, check_new_name
from tailrace.topic.consumers import consumer_key
from tailrace.topic.ledger import ledger_table
from tailrace.topic.view import SWITCHES_MAX, names

_PAGE: Final = 1000


def open_group(
    backend: Backend, name: str, filter: str, start: StartLike, clock: Clock
) -> StoredGroup:
    """Open a group, made if it is not there.

    A new one begins at `start` in every topic that there is by now, all in one commit; in topics
    made later it begins at their beginning. An existing one goes on where it is. `GroupExists` when
    it consumes others; `UnknownTopic` when a new one names a topic that is not there.
    """
    check_name("group", name)
    topics, begin = TopicFilter(filter), parse_start(start)
    for _ in range(SWITCHES_MAX):
        stored = find_group(backend, name)
        if stored is None:
            check_new_name("group", name)
            stored = _create(backend, name, topics, begin, clock)
        if stored is None:
            continue
        if stored.definition.filter != topics.text:
            raise GroupExists(name, stored.definition.filter, topics.text)
        return stored
    raise Busy(f"group {name!r} was changed {SWITCHES_MAX} times meanwhile", "try again later")


def delete_group(backend: Backend, name: str) -> None:
    """Delete a group: nobody of it writes any more, and nothing that it has is kept.

    `UnknownGroup` when there is none. Cut short, it may leave entries that mean nothing to anybody;
    a group that is made under the same name removes them.
    """
    for _ in range(SWITCHES_MAX):
        stored = read_group(backend, name)
        writes = {GROUPS + name: None, **_belongings(backend, name), _own_fence(name): b""}
        try:
            epoch = backend.store.commit(Change({GROUPS + name: stored.version}, writes))
        except Conflict:
            continue
        _remove_rest(backend, name, epoch)
        return
    raise Busy(f"group {name!r} was changed {SWITCHES_MAX} times meanwhile", "try again later")


def _create(
    backend: Backend, name: str, topics: TopicFilter, start: Start, clock: Clock
) -> StoredGroup | None:
    """A new group; None when something else happened meanwhile."""
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
            placement = place_start(backend.log, topic, stored.definition, start)
        except UnknownTopic:
            return None  # It was deleted meanwhile.
        orders[topic] = Order(stored, None, target, placement)
    identity = secrets.token_hex(8)
    definition = GroupDefinition(topics.text, target, identity, clock.now_ms())
    leftovers = _belongings(backend, name)
    change = pending_change(backend, name, 0, orders)
    # What an earlier group of that name left is written over, whatever version it has.
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
    """Remove what came between the look and the deletion, then what is in tables; unless there is a
    group of that name again, which has done so."""
    if rest := _belongings(backend, name):
        try:
            backend.store.commit(Change({_own_fence(name): epoch}, rest))
        except Conflict:
            return
    fence = Fence(_own_fence(name).removeprefix(FENCES), epoch)
    for table in (ledger_table(consumer_name(name)), reach_table(name)):
        while page := backend.table.scan(table, limit=_PAGE):
            try:
                entries = dict.fromkeys(TableKey(table, key) for key, _ in page)
                backend.commit(Transaction(table=entries, fence=fence))
            except Fenced:
                return


def _belongings(backend: Backend, name: str) -> dict[str, bytes | None]:
    """All store entries of a group but its definition and its own fence, to be removed."""
    topics = find_seeks(backend, name)
    prefixes = (
        grant_key(name, ""),
        seek_key(name, ""),
        members_prefix(name),
        failed_prefix(name),
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
