"""A request of a person becomes store entries, which the owners of shards carry out."""

from __future__ import annotations

import pytest

from tailrace.errors import Busy, InvalidValue, UnknownSubscription
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.lifecycle import delete_subscription
from tailrace.subscription.store.requests import making
from tailrace.subscription.store.requests.entries import pending_requests, read_requests
from tailrace.subscription.store.requests.making import (
    MadeRequest,
    Requester,
    is_pending,
    put_requests,
)
from tailrace.subscription.store.requests.selection import LetterSelection
from tests.support.letter_requests import nothing_is_left
from tests.support.shards import NAME, REJECTED, Shop

REDELIVER = RequestAction.REDELIVER
ANN = Requester("ann@host", 7, "dlq redeliver", "the service is up")


def shop_with_dead_keys(keys: int, *, shards: int) -> Shop:
    shop = Shop(partitions=4, shards=shards)
    for number in range(keys):
        shop.push(f"k{number}", number, 100 + number)
    for shard in range(shop.shards):
        shop.owner(shard).run(lambda value: REJECTED)
    return shop


def put(shop: Shop, selection: LetterSelection | None = None, now_ms: int = 5) -> MadeRequest:
    wanted = selection or LetterSelection()
    return put_requests(shop.backend, NAME, wanted, REDELIVER, ANN, now_ms=now_ms)


def test_each_shard_gets_its_part_and_carries_it_out() -> None:
    shop = shop_with_dead_keys(10, shards=2)
    made = put(shop)
    assert (made.entries, made.keys, made.letters) == (2, 10, 20)
    owners = [shop.owner(shard) for shard in range(2)]
    for shard, owner in enumerate(owners):
        assert [each.shard for each in read_requests(shop.backend, NAME, shard)] == [shard]
        assert is_pending(shop.backend, NAME, made.id)
        owner.run()
    assert not is_pending(shop.backend, NAME, made.id)
    assert sorted(value for owner in owners for value, _ in owner.calls) == sorted(
        shop.queued(Queue.DLQ)
    )
    assert nothing_is_left(shop)


def test_the_audit_says_who_asked_for_what_and_why() -> None:
    shop = shop_with_dead_keys(1, shards=1)
    made = put(shop, LetterSelection(keys=(b"k0",)), now_ms=1_700_000_000_000)
    shop.owner().run()
    (entry,) = read_audit(Hub.from_backend(shop.backend), NAME, 10)
    assert (entry.who, entry.pid, entry.command, entry.reason) == ANN
    assert entry.before == {
        "request": f"{made.id}.0",
        "shard": 0,
        "requested": "2023-11-14T22:13:20+00:00",
        "keys": ["k0"],
        "letters": [],
    }
    assert entry.after == {
        "done": "2 dead letters redelivered",
        "letters": 2,
        "targets": {"done": 1},
    }


def test_requests_are_read_in_the_order_in_which_they_were_made() -> None:
    shop = shop_with_dead_keys(2, shards=1)
    for now_ms in (900, 1000, 1100):
        put(shop, now_ms=now_ms)
    assert [each.made_ms for each in pending_requests(shop.backend, NAME)] == [900, 1000, 1100]


def test_a_request_with_many_targets_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "TARGETS_MAX", 3)
    shop = shop_with_dead_keys(10, shards=1)
    assert put(shop).entries == 4
    owner = shop.owner()
    owner.run()
    assert len(owner.calls) == 20
    assert nothing_is_left(shop)


def test_no_letter_selected_makes_no_request() -> None:
    shop = shop_with_dead_keys(1, shards=1)
    made = put(shop, LetterSelection(error="no such error"))
    assert (made.entries, made.letters) == (0, 0)
    assert nothing_is_left(shop)


def test_too_many_pending_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "PENDING_MAX", 1)
    shop = shop_with_dead_keys(1, shards=1)
    put(shop)
    with pytest.raises(Busy, match="1 pending request"):
        put(shop)


def test_a_letter_behind_others_is_refused_when_the_request_is_made() -> None:
    shop = Shop()
    shop.push("a", 1, 2)
    shop.owner().run(lambda value: REJECTED)
    with pytest.raises(InvalidValue, match="break_order=True, or --break-order"):
        put(shop, LetterSelection(positions=("orders/0.0@1",)))
    assert nothing_is_left(shop)


def test_deleting_a_subscription_deletes_its_requests() -> None:
    shop = shop_with_dead_keys(4, shards=1)
    put(shop)
    owner = shop.owner()
    owner.start_calls()
    owner.finish(next(iter(owner.in_flight)))
    owner.commit()
    assert not nothing_is_left(shop)
    delete_subscription(shop.backend, NAME)
    assert nothing_is_left(shop)
    with pytest.raises(UnknownSubscription):
        put(shop)
