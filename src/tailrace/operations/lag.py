"""The lag of groups, subscriptions and queues."""

from __future__ import annotations

from typing import Final

from tailrace.errors import InvalidValue
from tailrace.group.store.definition import group_names
from tailrace.group.store.describe import GroupSummary, PartitionLag, lag, list_groups
from tailrace.hub.hub import Hub
from tailrace.operations.subscription.describe import (
    ShardSummary,
    SubscriptionSummary,
    describe_each,
    shards_of,
    summarize,
)
from tailrace.subscription.store.describe import describe
from tailrace.suggestion import did_you_mean

GROUP: Final = "group:"
SUBSCRIPTION: Final = "subscription:"
"""Before a name that a group and a subscription share: which of the two is meant."""


def list_lags(hub: Hub) -> list[GroupSummary | SubscriptionSummary]:
    """Return all groups, and all subscriptions with those of queues, by name."""
    lags = [summarize(hub, info) for info in describe_each(hub)]
    return [*list_groups(hub.backend), *lags]


def lag_of_consumer(hub: Hub, consumer: str) -> list[PartitionLag] | list[ShardSummary]:
    """Return the unfinished partitions of a group, or the shards of a subscription.

    Raise `UnknownGroup` or `UnknownSubscription` if the name is unknown, and `InvalidValue` if a
    group and a subscription have it.
    """
    name = consumer.removeprefix(GROUP).removeprefix(SUBSCRIPTION)
    is_group = name in group_names(hub.backend) and not consumer.startswith(SUBSCRIPTION)
    is_subscription = name in hub.subscriptions() and not consumer.startswith(GROUP)
    if is_group and is_subscription:
        valid = f"{GROUP}{name} or {SUBSCRIPTION}{name}"
        both = f"{name!r} is a group and a subscription"
        raise InvalidValue("consumer", consumer, valid, problem=both)
    if not (is_group or is_subscription) and not did_you_mean(name, group_names(hub.backend)):
        is_subscription = bool(did_you_mean(name, hub.subscriptions()))
    if is_subscription or consumer.startswith(SUBSCRIPTION):
        return shards_of(describe(hub.backend, name))
    return lag(hub.backend, name)
