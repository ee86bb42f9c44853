"""The options of the worker that runs a declared handler."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

from tailrace.app.declaration import DeclaredSubscription
from tailrace.app.queue_declaration import DeclaredQueue
from tailrace.message import Message
from tailrace.subscription.worker.effects import Effects


class DeclaredOptions(TypedDict, total=False):
    """Options of `Subscription.start` that a declaration gives."""

    concurrency: int
    timeout: timedelta
    filter: Callable[[Message[Any]], bool] | None
    guarantee: str
    batch: bool
    batch_size: int | None
    effects: Effects | None


def worker_options(declared: DeclaredSubscription) -> DeclaredOptions:
    """Return the options of a worker that calls the handler as it is declared."""
    options = DeclaredOptions(
        concurrency=declared.concurrency, timeout=declared.timeout, filter=declared.accepts
    )
    if isinstance(declared, DeclaredQueue):
        options |= DeclaredOptions(
            guarantee=declared.guarantee.value,
            batch=declared.batch,
            batch_size=declared.batch_size,
            effects=declared.effects,
        )
    return options
