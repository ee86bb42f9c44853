"""Storage topics of the queues are deleted while somebody reads the subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.subscription import Subscription
from tailrace.subscription.store.generations.opening import opening_of
from tailrace.subscription.store.generations.steps import advance
from tailrace.subscription.store.lifecycle import read_again_if_deleted
from tailrace.subscription.store.names import dead_letter_queue
from tailrace.topic.composite import TOPICS
from tests.support.interleaved_store import InterleavedBackend
from tests.support.shards import NAME, Shop, stored

READS: dict[str, Callable[[Subscription], Any]] = {
    "describe": lambda found: found.describe().backlog.mq,
    "explain": lambda found: found.explain("c1").mq,
    "group_state": lambda found: found.group_state("c1"),
    "dead_letters.count": lambda found: found.dead_letters.count(),
    "dead_letters.list": lambda found: len(found.dead_letters.list()),
}


def scaled_shop() -> Shop:
    """A subscription with a storage topic of RQ and of DLQ that is empty, and takes no appends."""
    shop = Shop(partitions=4, shards=4)
    shop.topic.scale(8)
    opening = opening_of(stored(shop.backend))
    assert opening is not None
    shop.backend.store.commit(opening)
    return shop


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_read_after_a_deletion_is_what_would_have_been_read_before(
    read: Callable[[Subscription], Any],
) -> None:
    shop = scaled_shop()
    expected = read(Hub.from_backend(shop.backend).subscription(NAME))
    last_read = TOPICS + dead_letter_queue(NAME)
    shop = scaled_shop()
    between: Any = InterleavedBackend(
        shop.backend, last_read, lambda: advance(shop.backend, NAME), read=2
    )
    assert read(Hub.from_backend(between).subscription(NAME)) == expected
    assert stored(shop.backend).rq.definition.storages == (1,)


def test_a_partition_that_is_missing_for_another_reason_is_an_error() -> None:
    shop = scaled_shop()

    def read() -> None:
        raise UnknownTopic("orders", "memory", [])

    with pytest.raises(UnknownTopic):
        read_again_if_deleted(shop.backend, NAME, read)
