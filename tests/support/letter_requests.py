"""Requests on the dead letters of a `Shop`, made and audited."""

from __future__ import annotations

from tailrace.backend.contract import Change
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tailrace.subscription.shard.requests.request import (
    LetterPlace,
    LetterRequest,
    RequestAction,
    RequestTarget,
    encode_request,
)
from tailrace.subscription.shard.requests.state import states_table
from tailrace.subscription.store.names import requests_prefix
from tailrace.subscription.store.requests.entries import pending_requests
from tests.support.shards import NAME, Shop


def key_target(key: str, until: int | None = None) -> RequestTarget:
    """All letters of a key, or those up to an offset."""
    place = None if until is None else LetterPlace(0, 0, until)
    return RequestTarget(key.encode(), until=place)


def letters_target(key: str | None, *offsets: int, partition: int = 0) -> RequestTarget:
    """Some letters of a key, or one without a key."""
    places = tuple(LetterPlace(0, partition, offset) for offset in offsets)
    return RequestTarget(None if key is None else key.encode(), places)


def ask(
    shop: Shop,
    action: RequestAction,
    *targets: RequestTarget,
    break_order: bool = False,
    attempts: int = 1,
    id: str = "r1",
) -> None:
    """Store a request for shard 0."""
    request = LetterRequest(
        id,
        0,
        action,
        targets,
        made_ms=1_700_000_000_000,
        who="ann@host",
        pid=7,
        command=f"dlq {action.value}",
        reason="mended",
        break_order=break_order,
        attempts=attempts,
    )
    key = requests_prefix(NAME) + request.id
    shop.backend.store.commit(Change({key: 0}, {key: encode_request(request)}))


def audited(shop: Shop) -> list[str]:
    """Return what the audit says was done, in order."""
    return [entry.after["done"] for entry in read_audit(Hub.from_backend(shop.backend), NAME, 1000)]


def nothing_is_left(shop: Shop) -> bool:
    """True if no request is pending, and nothing is stored about one."""
    states = shop.backend.table.scan(states_table(NAME))
    return not (pending_requests(shop.backend, NAME) or states)
