"""Creation and deletion of queues.

A queue has a topic and a subscription of its own name, which one commit creates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.backend.contract import Backend
from tailrace.delivery.load_control import LoadChange, LoadControl
from tailrace.delivery.retry import DEFAULT_RETRY, Retry
from tailrace.errors import (
    InvalidName,
    QueueExists,
    SubscriptionExists,
    TopicExists,
    UnknownQueue,
    UnknownSubscription,
)
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.definition import (
    NewSubscription,
    SubscriptionDefinition,
    find_definition,
)
from tailrace.subscription.store.differences import differences
from tailrace.subscription.store.lifecycle import (
    create_subscription,
    delete_subscription,
    subscription_names,
)
from tailrace.topic.composite import Definition, check_name
from tailrace.topic.view import find


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


class WantedQueue(NamedTuple):
    """The settings of a queue as they are given. None for those that an existing queue need not
    agree with, and for which a new one has the defaults."""

    shards: int | None
    retry: Retry | None
    policy: OnDeadLetter | None
    load: LoadChange


def create_queue(
    backend: Backend, name: str, wanted: WantedQueue, topic: Definition | None, now_ms: int
) -> None:
    """Create a queue with its topic; without `topic`, make an existing topic a queue.

    Raises `TopicExists` for a topic without a queue that is to be created, and `QueueExists` if
    there is a queue that differs.
    """
    policy = wanted.policy or OnDeadLetter.BLOCK
    retry = wanted.retry or DEFAULT_RETRY
    load = wanted.load.applied(LoadControl())
    new = NewSubscription(name, retry, policy, wanted.shards, queue=True, load=load)
    try:
        create_subscription(backend, name, new, now_ms=now_ms, topic=topic)
    except (TopicExists, SubscriptionExists) as error:
        held = find_queue(backend, name)
        if held is not None:  # another process has created it just now
            check_queue(backend, name, held, wanted)
        elif isinstance(error, TopicExists):
            raise _without_queue(name) from None
        else:
            raise


def check_queue(
    backend: Backend, name: str, held: SubscriptionDefinition, wanted: WantedQueue
) -> None:
    """Raise `QueueExists` if a queue differs from the settings that are given."""
    retry, policy = wanted.retry or held.retry, wanted.policy or held.policy
    load = wanted.load.applied(held.load)
    new = NewSubscription(name, retry, policy, wanted.shards, filter=held.filter, load=load)
    if differs := differences(held, new, find(backend, name)):
        raise QueueExists(name, differs)


def _without_queue(name: str) -> TopicExists:
    return TopicExists(
        name,
        ["it is a topic without a queue"],
        "to make it a queue, from its first message on:"
        f" hub.queue({name!r}, from_topic=True), or tailrace queue create {name} --from-topic",
    )


@contextlib.contextmanager
def queue_errors(name: str) -> Iterator[None]:
    """Raise `UnknownQueue` if the queue was deleted, in place of the error about its
    subscription."""
    try:
        yield
    except UnknownSubscription as error:
        raise UnknownQueue(name, error.hub) from None


def delete_queue(backend: Backend, name: str) -> None:
    """Delete a queue and its topic in one commit. Raises `UnknownQueue`."""
    read_queue(backend, name)
    delete_subscription(backend, name, also=(name,))


def queue_names(backend: Backend) -> list[str]:
    """Return the names of all queues, sorted."""
    found = ((name, find_definition(backend, name)) for name in subscription_names(backend))
    return [name for name, entry in found if entry is not None and entry.definition.queue]
