"""Subscriptions in a store, and what is stored of them."""

from __future__ import annotations

from typing import Any

from tailrace.backend.contract import FENCES, Backend
from tailrace.delivery.retry import Retry
from tailrace.subscription.store.definition import NewSubscription
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.lifecycle import create_subscription, read_subscription

RETRY = Retry(3, first="1s", max="1m")


def create(backend: Backend, name: str = "crm", *, exist_ok: bool = False, **options: Any) -> Any:
    new = NewSubscription(options.pop("topic", "orders"), options.pop("retry", RETRY), **options)
    return create_subscription(backend, name, new, now_ms=5, exist_ok=exist_ok)


def marks(backend: Backend, name: str = "crm") -> dict[str, int]:
    """Return the stored low-water mark of each partition of MQ that is not 0."""
    stored = read_subscription(backend, name)
    partitions = [
        where for shard in range(stored.definition.shards) for where in stored.streams(shard).mq
    ]
    ledgers = read_ledgers(backend, stored, partitions)
    return {str(where): held.mark for where, held in ledgers.items() if held.mark}


def entries(backend: Backend) -> list[str]:
    """Return the keys of all store entries that name the subscription, but for its own fence."""
    keys = [entry.key for entry in backend.store.scan("")]
    return [key for key in keys if "crm" in key and key != f"{FENCES}subscription/crm"]
