"""The retry policy and the filter of a subscription may change."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.load_control import LoadChange, LoadControl
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidValue, SubscriptionExists, UnknownSubscription
from tailrace.hub.hub import Hub
from tailrace.subscription.store.generations.asking import ask_for_shards
from tailrace.subscription.store.lifecycle import (
    read_subscription,
    subscription_names,
    update_settings,
)
from tests.support.topics import push
from tests.unit.subscription.store.stored_subscriptions import RETRY, create


def test_a_filter_that_does_not_parse_is_refused_and_changes_nothing(
    hub: Hub, backend: Backend
) -> None:
    push(hub.create_topic("orders", partitions=1), 1)
    with pytest.raises(InvalidValue, match="filter, character 5: '=' is not an operator"):
        create(backend, filter="key = 'a'")
    assert subscription_names(backend) == []
    create(backend, filter="key == 'a'")
    with pytest.raises(InvalidValue, match="filter, character 5"):
        update_settings(backend, "crm", retry=RETRY, filter="key = 'b'")
    stored = read_subscription(backend, "crm").definition
    assert stored.filter == "key == 'a'"
    found = stored.message_filter
    assert isinstance(found, MessageFilter)
    assert found.matches(b"a", {})


def test_the_retry_policy_and_the_filter_may_change(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    before = create(backend)
    update_settings(backend, "crm", retry=Retry(None, first="2s", max="5s"), filter="key == 'a'")
    after = read_subscription(backend, "crm")
    assert after.definition.retry == Retry(None, first="2s", max="5s")
    assert after.definition.filter == "key == 'a'"
    assert after.definition.identity == before.definition.identity
    with pytest.raises(UnknownSubscription, match="did you mean 'crm'"):
        update_settings(backend, "crn", retry=RETRY, filter=None)


def test_settings_that_are_the_same_are_not_written(hub: Hub, backend: Backend) -> None:
    hub.create_topic("orders", partitions=1)
    stored = create(backend)
    update_settings(backend, "crm", retry=RETRY, filter=None)
    assert read_subscription(backend, "crm").version == stored.version


def test_fewer_calls_than_the_next_generation_has_shards_are_refused(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=4)
    create(backend, shards=2, load=LoadControl(4))
    assert ask_for_shards(backend, "crm", 4, uneven=False, by="ann", now_ms=1)
    with pytest.raises(InvalidValue, match="concurrency_total is 3 · valid: 4 or more"):
        update_settings(backend, "crm", load=LoadChange(3))


def test_load_control_may_change_and_is_checked_against_the_shards(
    hub: Hub, backend: Backend
) -> None:
    hub.create_topic("orders", partitions=4)
    with pytest.raises(InvalidValue, match="concurrency_total is 3 · valid: 4 or more"):
        create(backend, load=LoadControl(3))
    assert subscription_names(backend) == []
    create(backend, load=LoadControl(10))
    assert read_subscription(backend, "crm").definition.load == LoadControl(10)
    update_settings(backend, "crm", load=LoadChange(20))
    assert read_subscription(backend, "crm").definition.load == LoadControl(20)
    with pytest.raises(InvalidValue, match="concurrency_total is 2 · valid: 4 or more"):
        update_settings(backend, "crm", load=LoadChange(2))
    update_settings(backend, "crm", retry=RETRY)
    assert read_subscription(backend, "crm").definition.load == LoadControl(20)
    with pytest.raises(SubscriptionExists, match="its concurrency_total is 20, not off"):
        create(backend, exist_ok=True)
