"""What an app needs in its hub, made or changed when the app starts."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.app.declaration import DeclaredSubscription, DeclaredTopic
from tailrace.app.queue_declaration import SHARDS, DeclaredQueue
from tailrace.errors import SubscriptionExists
from tailrace.hub.hub import Hub
from tailrace.hub.subscription import Subscription
from tailrace.subscription.store.definition import NewSubscription, SubscriptionDefinition
from tailrace.subscription.store.differences import describe_retry, differences
from tailrace.topic.view import find

_log: Final = logging.getLogger("tailrace.app")


def create_topic(hub: Hub, declared: DeclaredTopic) -> None:
    """Create a topic if there is none; `TopicExists` if there is another one of that name."""
    hub.create_topic(
        declared.name,
        declared.type,
        partitions=declared.partitions,
        order_by=declared.order_by,
        exist_ok=True,
    )


def open_declared(hub: Hub, declared: DeclaredSubscription) -> Subscription:
    """Return the subscription, or that of the queue, as it is declared: see `open_subscription` and
    `open_queue`."""
    if isinstance(declared, DeclaredQueue):
        return open_queue(hub, declared)
    return open_subscription(hub, declared)


def open_queue(hub: Hub, declared: DeclaredQueue) -> Subscription:
    """Return the subscription of a queue as it is declared: created, or with its retry policy and
    filter changed.

    Raises `InvalidName` if a subscription has the name, `TopicTypeMismatch`, and
    `SubscriptionExists` if the policy on dead letters differs.
    """
    policy, shards = declared.on_dead_letter.value, declared.shards or SHARDS
    try:
        queue = hub.queue(
            declared.name,
            declared.type,
            shards=shards,
            retry=declared.retry,
            on_dead_letter=policy,
        )
    except SubscriptionExists:
        queue = hub.queue(declared.name, declared.type, shards=shards)
        _check_policy(queue.subscription.definition, declared)
    _change(queue.subscription, declared)
    return queue.subscription


def _check_policy(held: SubscriptionDefinition, declared: DeclaredQueue) -> None:
    """Raise `SubscriptionExists` if the policy on dead letters differs."""
    if held.policy is not declared.on_dead_letter:
        policy = f"its on_dead_letter is {held.on_dead_letter}, not {declared.on_dead_letter.value}"
        raise SubscriptionExists(
            declared.name,
            [policy],
            f"declare it as it is ({declared.label}), or under another name, or delete the queue"
            f" with its messages: tailrace queue delete {declared.name}",
        )


def open_subscription(hub: Hub, declared: DeclaredSubscription) -> Subscription:
    """Return the subscription as it is declared: created, or with its retry policy and filter
    changed.

    Raises `UnknownTopic`, `TopicTypeMismatch` if the payload type of the handler does not agree
    with the topic's, and `SubscriptionExists` if something differs that cannot be changed.
    """
    hub.topic(declared.topic, declared.type)
    try:
        return hub.create_subscription(
            declared.name,
            topic=declared.topic,
            shards=declared.shards,
            retry=declared.retry,
            on_dead_letter=declared.on_dead_letter.value,
            filter=declared.filter,
            start=declared.start,
            exist_ok=True,
        )
    except SubscriptionExists:
        existing = hub.subscription(declared.name)
    _check_unchangeable(hub, existing.definition, declared)
    _change(existing, declared)
    return existing


def _check_unchangeable(
    hub: Hub, held: SubscriptionDefinition, declared: DeclaredSubscription
) -> None:
    """Raise `SubscriptionExists` if more than the retry policy and the filter differ."""
    wanted = NewSubscription(
        declared.topic, held.retry, declared.on_dead_letter, declared.shards, filter=held.filter
    )
    found = differences(held, wanted, find(hub.backend, declared.topic))
    if found:
        raise SubscriptionExists(
            declared.name,
            found,
            f"declare it as it is ({declared.label}), or under another name, or delete it with its"
            f" queues and its progress: tailrace subscription delete {declared.name}",
        )


def _change(existing: Subscription, declared: DeclaredSubscription) -> None:
    """Set the retry policy and the filter to the declared ones, and log what was changed."""
    before = existing.definition
    existing.update(retry=declared.retry, filter=declared.filter or "")
    after = existing.definition
    for what, old, new in (
        ("retry policy", describe_retry(before.retry), describe_retry(after.retry)),
        ("filter", before.filter, after.filter),
    ):
        if old != new:
            kind = "queue" if isinstance(declared, DeclaredQueue) else "subscription"
            message = "changed the %s of %s %s from %s to %s"
            _log.info(message, what, kind, declared.name, old or "none", new or "none")
