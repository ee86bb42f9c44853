"""Creating queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from tailrace.delivery.retry import DEFAULT_RETRY, Retry
from tailrace.hub.hub import Hub
from tailrace.operations.subscription.load_options import LoadTexts, parse_load_texts
from tailrace.operations.subscription.settings import (
    SubscriptionSettings,
    parse_retry,
)
from tailrace.queue.lifecycle import find_queue


@dataclass(frozen=True, slots=True)
class CreatedQueue:
    """A queue that was created, or that existed. `created` is False if it existed."""

    name: str
    created: bool
    settings: SubscriptionSettings


def create_queue(
    hub: Hub,
    name: str,
    *,
    shards: int | None = None,
    attempts: str | None = None,
    first_delay: str | None = None,
    max_delay: str | None = None,
    on_dead_letter: str | None = None,
    from_topic: bool = False,
    **load: Unpack[LoadTexts],
) -> CreatedQueue:
    """Create a queue. One that exists stays as it is: its settings must be the same if they are
    given, otherwise `QueueExists`. See `Hub.queue` for `from_topic`."""
    found = find_queue(hub.backend, name)
    retry: Retry | None = None
    if any(given is not None for given in (attempts, first_delay, max_delay)):
        base = DEFAULT_RETRY if found is None else found.retry
        retry = parse_retry(base, attempts, first_delay, max_delay)
    queue = hub.queue(
        name,
        shards=shards,
        retry=retry,
        on_dead_letter=on_dead_letter,
        from_topic=from_topic,
        **parse_load_texts(load),
    )
    settings = SubscriptionSettings.of(queue.subscription.definition)
    return CreatedQueue(name, found is None, settings)
