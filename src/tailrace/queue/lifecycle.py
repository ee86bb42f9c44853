"""Creation and deletion of queues.

A queue has a topic and a subscription of its own name. The topic is created first: if the creation
is interrupted there, the next one finds the topic and makes it a queue.
"""

from __future__ import annotations

from tailrace.backend.contract import Backend
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidName, UnknownQueue
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.definition import (
    NewSubscription,
    SubscriptionDefinition,
    find_definition,
)
from tailrace.subscription.store.lifecycle import (
    create_subscription,
    delete_subscription,
    subscription_names,
)
from tailrace.topic.composite import check_name


def find_queue(backend: Backend, name: str) -> SubscriptionDefinition | None:
    """Return the definition of a queue's subscription; None if there is none.

    `InvalidName` if the name is that of another subscription.
    """
    found = find_definition(backend, check_name("queue", name))
    if found is not None and not found.definition.queue:
        valid = f"another name: {name!r} is a subscription of {found.definition.topic!r}"
        raise InvalidName("queue", name, valid)
    return None if found is None else found.definition


def read_queue(backend: Backend, name: str) -> SubscriptionDefinition:
    """Return the definition of a queue's subscription. Raises `UnknownQueue`."""
    found = find_queue(backend, name)
    if found is None:
        raise UnknownQueue(name, backend.name, queue_names(backend))
    return found


def create_queue(
    backend: Backend,
    name: str,
    *,
    retry: Retry,
    on_dead_letter: OnDeadLetter,
    filter: str | None,
    now_ms: int,
) -> None:
    """Make a topic a queue. `SubscriptionExists` if there is a queue that differs."""
    new = NewSubscription(name, retry, on_dead_letter, filter=filter, queue=True)
    create_subscription(backend, name, new, now_ms=now_ms, exist_ok=True)


def delete_queue(backend: Backend, name: str) -> None:
    """Delete what consumes a queue; its topic stays. Raises `UnknownQueue`."""
    read_queue(backend, name)
    delete_subscription(backend, name)


def queue_names(backend: Backend) -> list[str]:
    """Return the names of all queues, sorted."""
    found = ((name, find_definition(backend, name)) for name in subscription_names(backend))
    return [name for name, entry in found if entry is not None and entry.definition.queue]
