"""Transactions: pushes to several topics and table writes, together or not at all."""

from __future__ import annotations

from typing import Any

import pytest

import tailrace.hub.transaction
from tailrace.backend.contract import Transaction, raise_fence
from tailrace.errors import EncodeError, Error, Fenced, InvalidValue, MessageTooLarge, UnknownTopic
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import MemoryBackend
from tests.support.faulty_backend import FaultyBackend, once
from tests.support.topics import Order, all_values, nothing_stored


def test_pushes_to_several_topics_land_together_with_receipts_in_order(
    hub: Hub, orders: Topic[Order]
) -> None:
    other = hub.create_topic("other", str)
    with hub.transaction() as tx:
        for i in range(20):
            tx.push(orders, Order(i), key=f"k{i % 3}")
            tx.push("other", f"text {i}", key=f"k{i % 3}", headers={"i": str(i)})
        assert nothing_stored(orders)
    assert len(tx.receipts) == 40
    for i in range(20):
        assert orders.read(*tx.receipts[2 * i][1:4]).value == Order(i)
        text = other.read(*tx.receipts[2 * i + 1][1:4])
        assert (text.value, text.headers) == (f"text {i}", {"i": b"%d" % i})


def test_an_exception_discards_everything(hub: Hub, orders: Topic[Order]) -> None:
    tx = hub.transaction()

    def fail() -> None:
        with tx:
            tx.push(orders, Order(1))
            tx.put("mine", b"k", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert nothing_stored(orders)
    assert hub.backend.table.get("mine", b"k") is None
    with pytest.raises(Error, match="not committed"):
        _ = tx.receipts


def test_table_writes_commit_with_the_pushes(hub: Hub, orders: Topic[Order]) -> None:
    with hub.transaction() as tx:
        tx.push(orders, Order(1))
        tx.put("mine", b"k", b"v")
    assert hub.backend.table.get("mine", b"k") == b"v"
    with hub.transaction() as tx:
        tx.put("mine", b"k", None)
    assert hub.backend.table.get("mine", b"k") is None


def test_an_empty_transaction_commits_nothing(backend: FaultyBackend, hub: Hub) -> None:
    commits: list[Transaction] = []
    backend.before = commits.append
    with hub.transaction() as tx:
        pass
    assert (list(tx.receipts), commits) == ([], [])


def test_a_stale_fence_writes_nothing(hub: Hub, orders: Topic[Order]) -> None:
    fence = raise_fence(hub.backend.store, "owner")
    with hub.transaction(fence=fence) as tx:
        tx.push(orders, Order(1))
    raise_fence(hub.backend.store, "owner")
    with pytest.raises(Fenced), hub.transaction(fence=fence) as tx:
        tx.push(orders, Order(2))
    assert all_values(orders) == [Order(1)]


def test_a_switch_of_one_topic_meanwhile_is_followed(
    backend: FaultyBackend, hub: Hub, orders: Topic[Order]
) -> None:
    hub.create_topic("other", str)

    def scale() -> None:
        hub.topic("other").scale(12)
        hub.topic("orders").scale(8)

    backend.before = once(scale)
    with hub.transaction() as tx:
        for i in range(10):
            tx.push("other", str(i), key="k")
            tx.push(orders, Order(i), key="k")
    assert {receipt.storage for receipt in tx.receipts} == {1}
    assert [order.id for order in all_values(orders)] == list(range(10))
    assert all_values(hub.topic("other")) == [str(i) for i in range(10)]


def test_an_invalid_push_raises_at_the_push(hub: Hub, orders: Topic[Order]) -> None:
    wrong: Any = 7
    with hub.transaction() as tx:
        with pytest.raises(EncodeError):
            tx.push(orders, "text")
        with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
            tx.push("order", Order(1))
        with pytest.raises(InvalidValue, match="topic"):
            tx.push(wrong, Order(1))
        tx.push(orders, Order(2))
    assert all_values(orders) == [Order(2)]


def test_a_topic_of_another_hub_is_refused(hub: Hub, orders: Topic[Order]) -> None:
    elsewhere = Hub.from_backend(MemoryBackend()).create_topic("orders", Order)
    with hub.transaction() as tx, pytest.raises(InvalidValue, match="the hub of this transaction"):
        tx.push(elsewhere, Order(1))
    assert nothing_stored(orders)
    assert nothing_stored(elsewhere)


def test_a_transaction_outside_a_with_block_refuses_what_it_would_never_commit(
    hub: Hub, orders: Topic[Order]
) -> None:
    tx = hub.transaction()
    with pytest.raises(Error, match=r"has not begun.*with hub\.transaction\(\) as tx"):
        tx.push(orders, Order(1))
    with pytest.raises(Error, match="has not begun"):
        tx.put("mine", b"k", b"v")


def test_an_ended_transaction_cannot_be_entered_again(hub: Hub, orders: Topic[Order]) -> None:
    with hub.transaction() as tx:
        tx.push(orders, Order(1))
    with pytest.raises(Error, match="has ended"), tx:
        pass
    assert all_values(orders) == [Order(1)]


def test_an_ended_transaction_refuses_pushes(hub: Hub, orders: Topic[Order]) -> None:
    with hub.transaction() as tx:
        pass
    with pytest.raises(Error, match="has ended"):
        tx.push(orders, Order(1))
    with pytest.raises(Error, match="has ended"):
        tx.put("mine", b"k", b"v")


def test_a_transaction_is_bounded(
    hub: Hub, orders: Topic[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailrace.hub.transaction, "TRANSACTION_BYTES_MAX", 1000)

    def push_too_much() -> None:
        with hub.transaction() as tx:
            for i in range(100):
                tx.push(orders, Order(i))

    with pytest.raises(MessageTooLarge, match="a transaction"):
        push_too_much()
    assert nothing_stored(orders)
