"""What an app needs in its hub, made or changed when the app starts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from tailrace.app.declaration import DeclaredSubscription, DeclaredTopic
from tailrace.app.queue_declaration import DeclaredQueue
from tailrace.errors import QueueExists, SubscriptionExists
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


def open_all(
    hub: Hub, chosen: Iterable[DeclaredSubscription], topics: Iterable[DeclaredTopic]
) -> list[tuple[DeclaredSubscription, Subscription]]:
    """Return subscriptions, and those of queues, as they are declared: see `open_subscription` and
    `open_queue`. Queues are first, because a subscription may have one as its topic."""
    declared_topics = {each.name for each in topics}
    queues = [each for each in chosen if isinstance(each, DeclaredQueue)]
    others = [each for each in chosen if not isinstance(each, DeclaredQueue)]
    return [
        *((each, open_queue(hub, each, each.name in declared_topics)) for each in queues),
        *((each, open_subscription(hub, each)) for each in others),
    ]


def open_queue(hub: Hub, declared: DeclaredQueue, from_topic: bool = False) -> Subscription:
    """Return the subscription of a queue as it is declared: created, or with its retry policy,
    filter and load control changed. With `from_topic`, an existing topic of the name becomes a
    queue.

    Raises `InvalidName` if a subscription has the name, `TopicExists` if a topic has it,
    `TopicTypeMismatch`, and `QueueExists` if something differs that cannot be changed.
    """
    try:
        queue = hub.queue(
            declared.name,
            declared.type,
            shards=declared.shards,
            retry=declared.retry,
            on_dead_letter=declared.on_dead_letter.value,
            from_topic=from_topic,
            **declared.load.options,
        )
    except QueueExists:
        queue = hub.queue(declared.name, declared.type, strict=True)
        _check_unchangeable(hub, queue.subscription.definition, declared)
    _change(queue.subscription, declared)
    return queue.subscription


def open_subscription(hub: Hub, declared: DeclaredSubscription) -> Subscription:
    """Return the subscription as it is declared: created, or with its retry policy, filter and load
    control changed.

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
            **declared.load.options,
        )
    except SubscriptionExists:
        existing = hub.subscription(declared.name)
    _check_unchangeable(hub, existing.definition, declared)
    _change(existing, declared)
    return existing


def _check_unchangeable(
    hub: Hub, held: SubscriptionDefinition, declared: DeclaredSubscription
) -> None:
    """Raise `SubscriptionExists`, or `QueueExists`, if more differs than the retry policy, the
    filter and the load control."""
    wanted = NewSubscription(
        declared.topic,
        held.retry,
        declared.on_dead_letter,
        declared.shards,
        filter=held.filter,
        load=held.load,
    )
    found = differences(held, wanted, find(hub.backend, declared.topic))
    if not found:
        return
    remedy = f"declare it as it is ({declared.label}), or under another name, or delete it with its"
    if isinstance(declared, DeclaredQueue):
        remedy += f" messages: tailrace queue delete {declared.name}"
        raise QueueExists(declared.name, found, remedy)
    remedy += f" queues and its progress: tailrace subscription delete {declared.name}"
    raise SubscriptionExists(declared.name, found, remedy)


def _change(existing: Subscription, declared: DeclaredSubscription) -> None:
    """Set the retry policy, the filter and the load control to the declared ones, and log what was
    changed."""
    before = existing.definition
    existing.update(retry=declared.retry, filter=declared.filter or "", **declared.load.options)
    after = existing.definition
    now = after.load.texts
    for what, old, new in (
        ("retry policy", describe_retry(before.retry), describe_retry(after.retry)),
        ("filter", before.filter, after.filter),
        *((option, text, now[option]) for option, text in before.load.texts.items()),
    ):
        if old != new:
            kind = "queue" if isinstance(declared, DeclaredQueue) else "subscription"
            message = "changed the %s of %s %s from %s to %s"
            _log.info(message, what, kind, declared.name, old or "none", new or "none")
