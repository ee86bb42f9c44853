"""A pause is a store entry, with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import FENCES, Backend, Entry, Fence, raise_fence
from tailrace.delivery.retry import Retry
from tailrace.errors import Fenced, UnknownSubscription
from tailrace.group.store.history import read_history
from tailrace.hub.hub import Hub
from tailrace.subscription.store.definition import NewSubscription
from tailrace.subscription.store.lifecycle import create_subscription
from tailrace.subscription.store.names import PAUSED, shard_fence, worker_group
from tailrace.subscription.store.pause import (
    BREAKER,
    Pause,
    find_pause,
    pause,
    pause_fenced,
    pause_of,
    pause_version,
    resume,
)
from tests.support.interleaved_store import InterleavedBackend

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


def owner(backend: Backend) -> Fence:
    """Return the fence of an owner of a shard that was granted just now."""
    return raise_fence(backend.store, shard_fence("crm", "0.0", 0).name)


def test_the_owner_of_a_shard_pauses_and_says_why(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    version = pause_fenced(backend, "crm", "100 dead letters", owner(backend), 7)
    assert find_pause(backend, "crm") == Pause("100 dead letters", BREAKER, 7)
    assert pause_version(backend, "crm") == version
    assert "crm: paused by its dead-letter breaker: 100 dead letters" in caplog.text
    (line,) = read_history(backend, worker_group("crm"))
    assert (line.what, line.why) == ("pause", "dead-letter breaker: 100 dead letters")


def test_the_breaker_of_a_stale_owner_pauses_nothing(backend: Backend) -> None:
    stale = owner(backend)
    owner(backend)
    with pytest.raises(Fenced):
        pause_fenced(backend, "crm", "100 dead letters", stale, 7)
    assert find_pause(backend, "crm") is None


def test_a_shard_that_is_granted_to_another_at_the_last_moment_pauses_nothing(
    backend: Backend,
) -> None:
    stale = owner(backend)
    beside: Any = InterleavedBackend(backend, FENCES + stale.name, lambda: owner(backend))
    with pytest.raises(Fenced):
        pause_fenced(beside, "crm", "100 dead letters", stale, 7)
    assert find_pause(backend, "crm") is None


def test_a_breaker_keeps_the_pause_of_an_operator(backend: Backend) -> None:
    pause(backend, "crm", "bad deploy", "ops@host", 7)
    version = pause_version(backend, "crm")
    assert pause_fenced(backend, "crm", "100 dead letters", owner(backend), 8) == version
    assert find_pause(backend, "crm") == DEPLOY
