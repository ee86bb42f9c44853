"""The requests of operators on dead letters, as they are stored.

    subscription-request/NAME/ID      store: a request for one shard; ID+UNIT once divided
    subscription-requests/NAME        table: how far each request is, written by owners of shards

A person's request becomes a store entry for each shard that has letters of it. The owner of the
shard carries it out, stores its end together with the last effect and the audit line, removes the
store entry, and only then what the table has of it.
"""

from __future__ import annotations

from tailrace.backend.contract import Backend, Change
from tailrace.backend.table_scan import scan_prefix
from tailrace.subscription.shard.requests.request import LetterRequest, decode_request
from tailrace.subscription.shard.requests.state import (
    RequestState,
    decode_state,
    states_prefix,
    states_table,
)
from tailrace.subscription.store.names import requests_prefix


def pending_requests(backend: Backend, subscription: str) -> list[LetterRequest]:
    """Return the requests of a subscription that have not ended, or are not removed yet, in the
    order in which they were made."""
    found = [
        decode_request(entry.value)
        for entry in backend.store.scan(requests_prefix(subscription))
        if entry.value is not None
    ]
    return sorted(found, key=lambda request: (request.made_ms, request.id))


def read_requests(backend: Backend, subscription: str, shard: int) -> list[LetterRequest]:
    """Return the requests for one shard, in the order in which they were made."""
    return [each for each in pending_requests(backend, subscription) if each.shard == shard]


def read_states(backend: Backend, subscription: str, unit: str) -> dict[str, RequestState]:
    """Return how far the requests for a shard are, by id: of those that have begun."""
    prefix = states_prefix(unit)
    return {
        key[len(prefix) :].decode(): decode_state(value)
        for key, value in scan_prefix(backend.table, states_table(subscription), prefix)
    }


def request_key(subscription: str, id: str, unit: str = "") -> str:
    """Return the key of a request's store entry; of its part for a `unit`, if a new generation has
    divided it."""
    return requests_prefix(subscription) + (f"{id}+{unit}" if unit else id)


def remove_request(backend: Backend, subscription: str, id: str, unit: str) -> None:
    """Remove the store entry of a request that has ended, for a unit. Doing it again changes
    nothing."""
    keys = request_key(subscription, id), request_key(subscription, id, unit)
    backend.store.commit(Change(writes=dict.fromkeys(keys)))
