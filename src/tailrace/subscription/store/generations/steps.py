"""The steps of the change to the next generation. Any process takes those that are possible.

See ``docs/design/0021-generations.md``. Each step is a commit that expects the definition as it was
read. What is kept by shard is in tables, which no commit of the store can write: it is moved while
all shards are fenced, under the fence of the subscription, before the commit that makes the next
generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
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
from tailrace.backend.table_scan import PAGE_ENTRIES
from tailrace.errors import Conflict, Fenced
from tailrace.group.store.definition import unit_fence
from tailrace.group.store.grants import standing_grants
from tailrace.group.store.presence import HOLDS
from tailrace.subscription.layout.generation import (
    ChangePhase,
    GenerationChange,
    NextGeneration,
)
from tailrace.subscription.store.definition import (
    StoredSubscription,
    find_subscription,
    joined,
)
from tailrace.subscription.store.generations.drained import deletion_of_drained
from tailrace.subscription.store.generations.feeders import next_ledgers
from tailrace.subscription.store.generations.opening import opening_of, redefinition
from tailrace.subscription.store.generations.requests import divided_requests
from tailrace.subscription.store.generations.waiting import (
    is_possible,
    next_generation,
    redefined,
)
from tailrace.subscription.store.names import SUBSCRIPTIONS, ShardName, own_fence, worker_group
from tailrace.subscription.store.reset.entry import is_pending
from tailrace.subscription.store.reset.steps import finish_reset
from tailrace.topic.composite import TOPICS

STEPS_MAX: Final = 20
"""The most steps of one call: after so many conflicts another process is taking them."""


def advance(backend: Backend, name: str) -> StoredSubscription | None:
    """Take every step that is possible now: open storage topics, change the generation, and delete
    older storage topics of RQ and DLQ that hold nothing more.

    Returns the subscription; None if there is none of that name. Raises `UnknownTopic` if its topic
    was deleted.
    """
    for _ in range(STEPS_MAX):
        stored = find_subscription(backend, name)
        if stored is None or not take_step(backend, stored):
            return stored
    return find_subscription(backend, name)


def take_step(backend: Backend, stored: StoredSubscription) -> bool:
    """Take the next step, unless another process is faster. False if none is possible: a pending
    offset reset comes first."""
    if is_pending(backend.store, stored.name):
        return finish_reset(backend, stored.name)
    if stored.definition.phase is ChangePhase.MOVING:
        _move(backend, stored)
        return True
    change = _next_change(backend, stored)
    if change is None:
        return False
    _commit(backend, change)
    return True


def fence_shards(backend: Backend, name: str) -> None:
    """Fence the shards of a generation that ends, whoever still has them."""
    stored = find_subscription(backend, name)
    if stored is not None and stored.definition.phase is ChangePhase.ENDING:
        _commit(backend, _fencing(stored))


def _next_change(backend: Backend, stored: StoredSubscription) -> Change | None:
    if stored.definition.phase is ChangePhase.ENDING:
        return None if _has_owners(backend, stored) else _fencing(stored)
    opening = opening_of(stored)
    if opening is not None:
        return opening
    following = next_generation(stored)
    if following is not None and is_possible(backend, stored, following):
        return _beginning(stored, following)
    return deletion_of_drained(backend, stored)


def _beginning(stored: StoredSubscription, following: NextGeneration) -> Change:
    """Return the change after which no shard is granted any more."""
    before = stored.definition.change or GenerationChange(ChangePhase.ENDING, following.shards)
    change = msgspec.structs.replace(
        before, phase=ChangePhase.ENDING, shards=following.shards, opened=following.opened
    )
    after = msgspec.structs.replace(stored.definition, change=change)
    key, topic = SUBSCRIPTIONS + stored.name, TOPICS + stored.definition.topic
    expect = {key: stored.version, topic: stored.main.version}
    return Change(expect, {key: msgspec.json.encode(after)})


def _has_owners(backend: Backend, stored: StoredSubscription) -> bool:
    """True if a process that is alive has a shard of the generation that ends."""
    return any(
        ShardName.parse(grant.unit).generation == stored.definition.generation
        and not grant.fenced
        and backend.holder(HOLDS + grant.process) is not None
        for grant in standing_grants(backend, worker_group(stored.name))
    )


def _fencing(stored: StoredSubscription) -> Change:
    """Return the change after which no owner of the generation can write."""
    assert stored.definition.change is not None
    change = msgspec.structs.replace(stored.definition.change, phase=ChangePhase.MOVING)
    after = msgspec.structs.replace(stored.definition, change=change)
    group, key = worker_group(stored.name), SUBSCRIPTIONS + stored.name
    fences = [FENCES + unit_fence(group, unit) for unit in stored.units]
    writes = {key: msgspec.json.encode(after), **dict.fromkeys(fences, b"")}
    return Change({key: stored.version}, writes)


def _move(backend: Backend, stored: StoredSubscription) -> None:
    """Write what is kept by shard for the next generation, and make it.

    To read may take long. So the fence is raised after it: processes that move at the same time
    would fence each other again and again. What they read changes only to what they write.
    """
    following = next_generation(stored)
    assert following is not None
    after = redefined(stored, following)
    requests = divided_requests(backend, stored, after)
    ledgers = next_ledgers(backend, stored, stored._replace(definition=after))
    fence = _take(backend, stored)
    if fence is None:
        return
    try:
        _write(backend, {**requests.states, **ledgers}, fence)
    except Fenced:
        return
    fenced = FENCES + fence.name
    own = Change({fenced: fence.epoch}, {fenced: b""})
    _commit(backend, joined(redefinition(stored, after), requests.entries, own))


def _take(backend: Backend, stored: StoredSubscription) -> Fence | None:
    """Become the one process that may move; None if the definition is another by now, or deleted.

    The fence stays as it is then: a deletion clears the tables under it.
    """
    name = own_fence(stored.name)
    change = Change({SUBSCRIPTIONS + stored.name: stored.version}, {FENCES + name: b""})
    try:
        return Fence(name, backend.store.commit(change))
    except Conflict:
        return None


def _write(backend: Backend, entries: Mapping[TableKey, bytes | None], fence: Fence) -> None:
    left = iter(entries.items())
    while page := dict(islice(left, PAGE_ENTRIES)):
        backend.commit(Transaction(table=page, fence=fence))


def _commit(backend: Backend, change: Change) -> None:
    try:
        backend.store.commit(change)
    except Conflict:
        return  # another process was faster
