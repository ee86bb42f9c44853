"""Creating subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from tailrace.delivery.retry import DEFAULT_RETRY
from tailrace.hub.hub import Hub
from tailrace.operations.subscription.load_options import LoadTexts, parse_load_texts
from tailrace.operations.subscription.settings import (
    SubscriptionSettings,
    parse_retry,
    parse_statuses,
)
from tailrace.subscription.shard.queues import OnDeadLetter


@dataclass(frozen=True, slots=True)
class CreatedSubscription:
    """A subscription that was created, or that existed with the same settings."""

    name: str
    settings: SubscriptionSettings


def create_subscription(
    hub: Hub,
    name: str,
    topic: str,
    *,
    attempts: str | None = None,
    first_delay: str | None = None,
    max_delay: str | None = None,
    on_dead_letter: str | None = None,
    filter: str | None = None,
    start: str = "earliest",
    shards: int | None = None,
    uneven: bool = False,
    rq_partitions: int | None = None,
    dlq_partitions: int | None = None,
    exist_ok: bool = False,
    endpoint: str | None = None,
    timeout: str | None = None,
    secret: str | None = None,
    allow_private: bool | None = None,
    retry_statuses: str | None = None,
    **load: Unpack[LoadTexts],
) -> CreatedSubscription:
    """Create a subscription. Raise `SubscriptionExists` if the name is taken.

    With `exist_ok`, only a subscription with other settings is an error.
    """
    created = hub.create_subscription(
        name,
        topic=topic,
        shards=shards,
        retry=parse_retry(DEFAULT_RETRY, attempts, first_delay, max_delay),
        on_dead_letter=on_dead_letter or OnDeadLetter.BLOCK.value,
        filter=filter,
        start=start,
        rq_partitions=rq_partitions,
        dlq_partitions=dlq_partitions,
        uneven=uneven,
        exist_ok=exist_ok,
        endpoint=endpoint,
        timeout=timeout,
        secret=secret,
        allow_private=allow_private,
        retry_statuses=parse_statuses(retry_statuses),
        **parse_load_texts(load),
    )
    return CreatedSubscription(name, SubscriptionSettings.of(created.definition))
