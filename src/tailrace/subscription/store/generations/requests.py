"""The requests of operators, divided by the shards of the next generation.

All owners are fenced, and no request is made meanwhile. So what is read here does not change until
the next generation is made.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import NamedTuple

from tailrace.backend.contract import Backend, Change, TableKey
from tailrace.backend.table_scan import scan_all
from tailrace.errors import CorruptBatch, OutOfRange, UnknownTopic
from tailrace.message import Partition
from tailrace.subscription.layout.keys import KeyShards
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.division import RequestPart, divide_request
from tailrace.subscription.shard.requests.request import (
    LetterPlace,
    RequestTarget,
    decode_request,
    encode_request,
)
from tailrace.subscription.shard.requests.state import (
    encode_state,
    state_key,
    states_prefix,
    states_table,
)
from tailrace.subscription.store.definition import StoredSubscription, SubscriptionDefinition
from tailrace.subscription.store.names import ShardName, dead_letter_queue, requests_prefix
from tailrace.subscription.store.queue_scan import message_at
from tailrace.subscription.store.requests.entries import read_states, request_key


class DividedRequests(NamedTuple):
    """The store entries of requests for the next generation, and the states of their parts."""

    entries: Change
    states: dict[TableKey, bytes | None]


def divided_requests(
    backend: Backend, stored: StoredSubscription, after: SubscriptionDefinition
) -> DividedRequests:
    """Return what replaces the requests of a generation in the next one.

    The states of earlier generations than this one are removed.
    """
    name, generation = stored.name, stored.definition.generation
    states: dict[TableKey, bytes | None] = dict.fromkeys(_leftovers(backend, stored))
    expect: dict[str, int] = {}
    writes: dict[str, bytes | None] = {}
    parts = []
    keys = stored._replace(definition=after).keys
    by_unit = {unit: read_states(backend, name, unit) for unit in stored.units}
    for entry in backend.store.scan(requests_prefix(name)):
        request = decode_request(entry.value or b"")
        expect[entry.key], writes[entry.key] = entry.version, None
        unit = str(ShardName(generation, request.shard))
        parts.append(RequestPart(request, by_unit[unit].get(request.id)))
    parts.sort(key=lambda part: (part.request.id, part.request.shard))
    for _, some in groupby(parts, key=lambda part: part.request.id):
        for request, state in divide_request(list(some), partial(_shard_of, backend, name, keys)):
            unit = str(ShardName(after.generation, request.shard))
            writes[request_key(name, request.id, unit)] = encode_request(request)
            states[state_key(name, unit, request.id)] = encode_state(state)
    return DividedRequests(Change(expect, writes), states)


def _shard_of(backend: Backend, subscription: str, keys: KeyShards, target: RequestTarget) -> int:
    """Return the shard that has a target of a request in the next generation."""
    if target.key:
        return keys.of_key(target.key)
    try:
        pushed = _origin(backend, subscription, target.letters[0])
    except (CorruptBatch, OutOfRange, UnknownTopic):
        return 0  # whoever has the target finds that there is no such letter
    return keys.of_pushed(pushed.storage, pushed.number)


def _origin(backend: Backend, subscription: str, place: LetterPlace) -> Partition:
    where = Partition(dead_letter_queue(subscription), place.storage, place.partition)
    return message_at(backend, Queue.DLQ, where, place.offset).origin.partition


def _leftovers(backend: Backend, stored: StoredSubscription) -> list[TableKey]:
    """Return the states that were left by the generations before this one."""
    table = states_table(stored.name)
    kept = tuple(states_prefix(unit) for unit in stored.units)
    found = scan_all(backend.table, table)
    return [TableKey(table, key) for key, _ in found if not key.startswith(kept)]
