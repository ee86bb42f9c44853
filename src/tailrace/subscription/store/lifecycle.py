"""Creation, change and deletion of subscriptions.

Definitions, topics and grants are in the store; progress and attempts are in tables; no commit
writes both. The own fence of a subscription orders the two:

* A creation raises the fence, removes from the tables what an earlier subscription of the name left
  behind, writes where the new one starts, and then commits the definition, which expects the fence
  as it raised it. Until that commit nothing reads the tables.
* A deletion removes everything from the store in one commit, which raises the fence, and then
  clears the tables under it. If it is interrupted, deleting again finishes it, and so does a
  creation.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Fence,
    TableKey,
    Transaction,
    raise_fence,
)
from tailrace.backend.retry import CHANGES_MAX, retry_on_conflict
from tailrace.backend.table_scan import clear_table
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.load_control import NO_CHANGE, LoadChange
from tailrace.delivery.retry import Retry
from tailrace.errors import (
    Conflict,
    Fenced,
    InvalidName,
    InvalidValue,
    SubscriptionExists,
    TopicExists,
    UnknownSubscription,
    UnknownTopic,
)
from tailrace.group.store.definition import LEADERS, grant_key, unit_fence
from tailrace.group.store.presence import members_prefix
from tailrace.group.store.start import place_start
from tailrace.message import Partition
from tailrace.reserved_names import REPLAY_PREFIX
from tailrace.subscription.endpoint.definition import SAME_ENDPOINT, EndpointChange
from tailrace.subscription.shard.attempts import attempts_table, traces_table
from tailrace.subscription.shard.commit.counts import counts_table
from tailrace.subscription.shard.permits import permits_table
from tailrace.subscription.shard.requests.state import states_table
from tailrace.subscription.store.definition import (
    DefinitionEntry,
    NewSubscription,
    StoredSubscription,
    creation_of,
    find_definition,
    find_subscription,
    joined,
    retry_ms,
)
from tailrace.subscription.store.differences import differences
from tailrace.subscription.store.names import (
    PAUSED,
    RESETS,
    SUBSCRIPTIONS,
    WORKER_IDS,
    dead_letter_queue,
    own_fence,
    replay_of,
    requests_prefix,
    retry_queue,
    worker_group,
)
from tailrace.subscription.store.reset.numbers import numbers_table
from tailrace.subscription.store.shared_names import check_unused, unused_by_others
from tailrace.topic.composite import (
    TOPICS,
    Definition,
    check_name,
    check_new_name,
    creation,
    deletion,
)
from tailrace.topic.consumers import consumer_key
from tailrace.topic.internal_topics import check_new_topic, check_not_queue
from tailrace.topic.ledger import Progress, ledger_table
from tailrace.topic.view import StoredDefinition, find, names

T = TypeVar("T")


def subscription_names(backend: Backend) -> list[str]:
    """Return the names of all subscriptions, sorted, without replays."""
    found = (each.key.removeprefix(SUBSCRIPTIONS) for each in backend.store.scan(SUBSCRIPTIONS))
    return [name for name in found if replay_of(name) is None]


def read_definition(backend: Backend, name: str) -> DefinitionEntry:
    """Return the definition of a subscription. Raises `UnknownSubscription`."""
    found = find_definition(backend, check_name("subscription", name))
    if found is None:
        raise UnknownSubscription(name, backend.name, subscription_names(backend))
    return found


def read_subscription(backend: Backend, name: str) -> StoredSubscription:
    """Return a subscription with its topics. Raises `UnknownSubscription`, or `UnknownTopic` if its
    topic was deleted."""
    found = find_subscription(backend, check_name("subscription", name))
    if found is None:
        raise UnknownSubscription(name, backend.name, subscription_names(backend))
    return found


def read_again_if_deleted(backend: Backend, name: str, read: Callable[[], T]) -> T:
    """Return what `read` returns, which reads the definition and the queues of a subscription.

    Workers delete older storage topics of the queues once they are empty, also between two reads.
    So it is called again if a partition was missing and the queues have changed. Raises
    `UnknownTopic` if they have not.
    """
    for _ in range(CHANGES_MAX):
        before = _versions(backend, name)
        try:
            return read()
        except UnknownTopic:
            if _versions(backend, name) == before:
                raise
    return read()


def _versions(backend: Backend, name: str) -> list[int | None]:
    """Return the versions of what says which storage topics a subscription has."""
    queues = (TOPICS + retry_queue(name), TOPICS + dead_letter_queue(name))
    entries = (backend.store.get(key) for key in (SUBSCRIPTIONS + name, *queues))
    return [None if entry is None else entry.version for entry in entries]


def create_subscription(
    backend: Backend,
    name: str,
    new: NewSubscription,
    *,
    now_ms: int,
    exist_ok: bool = False,
    entries: Mapping[str, bytes] = MappingProxyType({}),
    topic: Definition | None = None,
) -> StoredSubscription:
    """Create a subscription with its queues. In the same commit create other store `entries` and
    its `topic`, if they are given; they must not exist.

    With `exist_ok`, an existing one is returned if it is the same. Raises `SubscriptionExists`,
    `UnknownTopic`, or `TopicExists` if the topic is to be created, `InvalidName` if a pipeline has
    the name, and `InvalidValue` if a key would have different shards in the topic and in the
    queues.
    """
    check_name("subscription", name)

    def attempt() -> StoredSubscription | None:
        found = find_definition(backend, name)
        if found is None:
            _check_new(name, new)
            created = _create(backend, name, new, now_ms, entries, topic)
            return find_subscription(backend, name) if created else None
        differs = differences(found.definition, new, find(backend, new.topic))
        if differs or not exist_ok:
            raise SubscriptionExists(name, differs)
        return find_subscription(backend, name)

    return retry_on_conflict(attempt, f"subscription {name!r}")


def update_settings(
    backend: Backend,
    name: str,
    *,
    retry: Retry | None = None,
    filter: str | None = None,
    load: LoadChange = NO_CHANGE,
    endpoint: EndpointChange = SAME_ENDPOINT,
) -> DefinitionEntry:
    """Set the retry policy, the filter, the load control or the endpoint of a subscription; running
    workers follow.

    None leaves one as it is, and an empty filter removes it. Raises `UnknownSubscription`, and
    `InvalidValue` for a filter that does not parse, for load control that the shards do not allow,
    for an endpoint that is not valid, and for one of a subscription without. Returns the definition
    as it was before.
    """
    if filter:
        MessageFilter(filter)

    def attempt() -> DefinitionEntry:
        before, version = read_definition(backend, name)
        chosen = before.retry if retry is None else retry
        first_ms, max_ms = retry_ms(chosen)
        after = msgspec.structs.replace(
            before,
            attempts=chosen.attempts,
            first_ms=first_ms,
            max_ms=max_ms,
            filter=before.filter if filter is None else filter or None,
            endpoint=endpoint.followed_by(before.endpoint, name),
            load=load.applied(before.load),
        )
        following = 1 if after.change is None else after.change.shards
        after.load.check(max(after.shards, following))
        if after != before:
            key = SUBSCRIPTIONS + name
            backend.store.commit(Change({key: version}, {key: msgspec.json.encode(after)}))
        return DefinitionEntry(before, version)

    return retry_on_conflict(attempt, f"subscription {name!r}")


def delete_subscription(backend: Backend, name: str, *, also: Sequence[str] = ()) -> None:
    """Delete a subscription with its queues and its progress, and fence its workers.

    The topics `also` are deleted by the same commit, if they exist. Raises `UnknownSubscription`,
    unless an interrupted deletion left something to remove.
    """
    check_name("subscription", name)

    def attempt() -> Fence:
        found = find_definition(backend, name)
        if found is None:
            if not deletion_interrupted(backend, name):
                raise UnknownSubscription(name, backend.name, subscription_names(backend))
            return raise_fence(backend.store, own_fence(name))
        queues = [
            deletion(queue, *stored)
            for queue in (retry_queue(name), dead_letter_queue(name), *also)
            if (stored := find(backend, queue)) is not None
        ]
        fenced = FENCES + own_fence(name)
        writes = {SUBSCRIPTIONS + name: None, **_belongings(backend, name), fenced: b""}
        for topic in (found.definition.topic, retry_queue(name), dead_letter_queue(name)):
            writes[consumer_key(topic, worker_group(name))] = None
        own = Change({SUBSCRIPTIONS + name: found.version}, writes)
        return Fence(own_fence(name), backend.store.commit(joined(own, *queues)))

    fence = retry_on_conflict(attempt, f"subscription {name!r}")
    # A new subscription of the same name ends this: its creation has removed the rest.
    with contextlib.suppress(Conflict, Fenced):
        if rest := _belongings(backend, name):  # written by workers during the deletion
            backend.store.commit(Change({FENCES + fence.name: fence.epoch}, rest))
        _clear_tables(backend, name, fence)


def deletion_interrupted(backend: Backend, name: str) -> bool:
    """True if there is no subscription of that name, and a deletion left something to remove."""
    if find_definition(backend, check_name("subscription", name)) is not None:
        return False
    return any(backend.table.scan(table, limit=1) for table in _tables(name))


def _check_new(name: str, new: NewSubscription) -> None:
    check_new_name("subscription", name)
    if (new.replay is None) is not (replay_of(name) is None):
        valid = f"names that do not begin with {REPLAY_PREFIX!r}, which Tailrace reserves"
        raise InvalidName("subscription", name, valid)


def _create(
    backend: Backend,
    name: str,
    new: NewSubscription,
    now_ms: int,
    entries: Mapping[str, bytes],
    topic: Definition | None,
) -> bool:
    """Create a subscription. False, or `Conflict`, if a concurrent change prevented it."""
    check_unused(backend.store, "subscription", name)
    main = _main_topic(backend, new) if topic is None else _new_topic(backend, new, topic)
    change = creation_of(name, new, main, now_ms=now_ms, identity=secrets.token_hex(8))
    if topic is not None:
        change = joined(change, creation(new.topic, topic))
    fence = raise_fence(backend.store, own_fence(name))
    try:
        _clear_tables(backend, name, fence)
        _write_start(backend, name, new, main, fence)
    except Fenced:
        return False
    fenced = FENCES + own_fence(name)
    others = unused_by_others("subscription", name)
    expect = {**change.expect, **others, **dict.fromkeys(entries, 0), fenced: fence.epoch}
    writes = {**_belongings(backend, name), **change.writes, **entries, fenced: b""}
    backend.store.commit(Change(expect, writes, change.create))
    return True


def _main_topic(backend: Backend, new: NewSubscription) -> StoredDefinition:
    check_not_queue(check_name("topic", new.topic))
    if isinstance(new.start, tuple):
        for position in new.start:
            if position.topic != new.topic:
                raise InvalidValue("start", str(position), f"a position in {new.topic}")
    main = find(backend, new.topic)
    if main is None:
        raise UnknownTopic(new.topic, backend.name, names(backend))
    return main


def _new_topic(backend: Backend, new: NewSubscription, topic: Definition) -> StoredDefinition:
    """Return a topic that is created together with its subscription."""
    check_new_topic(check_name("topic", new.topic))
    if find(backend, new.topic) is not None:
        raise TopicExists(new.topic)
    return StoredDefinition(topic, 0)


def _write_start(
    backend: Backend, name: str, new: NewSubscription, main: StoredDefinition, fence: Fence
) -> None:
    """Acknowledge the messages before the start."""
    if new.replay is None:
        placed = place_start(backend.log, new.topic, main.definition, new.start).marks
        marks = {Partition(new.topic, *stream): mark for stream, mark in placed.items()}
    else:
        marks = new.replay.starts_in(new.topic)
    entries: dict[TableKey, bytes | None] = {}
    for partition, mark in marks.items():
        if mark:
            entries |= Progress(worker_group(name), partition, mark).writes()
    if entries:
        backend.commit(Transaction(table=entries, fence=fence))


def _clear_tables(backend: Backend, name: str, fence: Fence) -> None:
    for table in _tables(name):
        clear_table(backend, table, fence)


def _tables(name: str) -> tuple[str, ...]:
    group = worker_group(name)
    calls = permits_table(name), attempts_table(name), traces_table(name)
    stored = states_table(name), counts_table(name), numbers_table(name)
    return ledger_table(group), *calls, *stored


def _belongings(backend: Backend, name: str) -> dict[str, bytes | None]:
    """Return the removal of all store entries of a subscription, except its definition, its topics
    and its own fence."""
    group = worker_group(name)
    prefixes = (
        requests_prefix(name),
        f"{WORKER_IDS}{name}/",
        grant_key(group, ""),
        members_prefix(group),
        FENCES + unit_fence(group, ""),
    )
    found = [entry.key for prefix in prefixes for entry in backend.store.scan(prefix)]
    single = PAUSED + name, RESETS + name, LEADERS + group
    found += [key for key in single if backend.store.get(key) is not None]
    return dict.fromkeys(found)
