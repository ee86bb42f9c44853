"""A pause is a store entry, with its reason."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, Entry
from tailrace.delivery.retry import Retry
from tailrace.errors import UnknownSubscription
from tailrace.hub.hub import Hub
from tailrace.subscription.store.definition import NewSubscription
from tailrace.subscription.store.lifecycle import create_subscription
from tailrace.subscription.store.names import PAUSED
from tailrace.subscription.store.pause import Pause, find_pause, pause, pause_of, resume

DEPLOY = Pause("bad deploy", "ops@host", 7)


@pytest.fixture(autouse=True)
def crm(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    create_subscription(backend, "crm", NewSubscription("orders", Retry(3)), now_ms=0)


def test_a_pause_is_kept_until_the_subscription_is_resumed(backend: Backend) -> None:
    assert find_pause(backend, "crm") is None
    assert pause(backend, "crm", "bad deploy", "ops@host", 7)
    assert find_pause(backend, "crm") == DEPLOY
    assert resume(backend, "crm") == DEPLOY
    assert find_pause(backend, "crm") is None
    assert resume(backend, "crm") is None


def test_a_second_pause_keeps_the_first_reason(backend: Backend) -> None:
    pause(backend, "crm", "bad deploy", "ops@host", 7)
    assert not pause(backend, "crm", "another", "dev@host", 8)
    assert find_pause(backend, "crm") == DEPLOY


def test_only_existing_subscriptions_are_paused_and_resumed(backend: Backend) -> None:
    with pytest.raises(UnknownSubscription):
        pause(backend, "crn", "bad deploy", "ops@host", 7)
    with pytest.raises(UnknownSubscription):
        resume(backend, "crn")
    assert backend.store.scan(PAUSED) == []


def test_a_watched_entry_tells_if_the_subscription_is_paused(backend: Backend) -> None:
    pause(backend, "crm", "bad deploy", "ops@host", 7)
    (entry,) = backend.store.scan(PAUSED)
    assert pause_of(entry) == DEPLOY
    assert pause_of(Entry(entry.key, None, 9)) is None
