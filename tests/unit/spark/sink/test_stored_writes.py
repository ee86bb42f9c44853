"""Numbered writes of Spark: each is stored once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.backend.contract import Transaction
from tailrace.errors import BackendUnavailable
from tailrace.spark.sink.stored_writes import (
    ATTEMPTS_MAX,
    HISTORY_MAX,
    StoredWrites,
    WriteId,
    store_once,
)
from tests.support.faulty_backend import FaultyBackend, once, unknown


@pytest.fixture
def backend() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def orders(backend: FaultyBackend) -> Iterator[tailrace.Topic[Any]]:
    with tailrace.Hub.from_backend(backend) as hub:
        yield hub.create_topic("orders", bytes, partitions=1)


def store(orders: tailrace.Topic[Any], number: int, contents: bytes | None = b"c") -> bool:
    view = orders.view
    batch = orders.builder.columns(pa.record_batch({"value": [str(number)]}))

    def build() -> Transaction:
        return Transaction(batch.route(view.target), since=view.target.since)

    write = WriteId("query/q", number, contents)
    return store_once(view.backend, {"orders": view}, build, write)


def stored(orders: tailrace.Topic[Any]) -> list[int]:
    return [int(value.as_py()) for batch in orders.batches(0, 0) for value in batch["value"]]


def test_a_repeated_write_is_skipped(orders: tailrace.Topic[Any]) -> None:
    assert [store(orders, number) for number in (0, 1, 1, 2, 0)] == [True, True, False, True, False]
    assert stored(orders) == [0, 1, 2]


def test_a_number_that_comes_again_with_other_contents_is_stored(
    orders: tailrace.Topic[Any],
) -> None:
    for number in (0, 1, 2):
        assert store(orders, number, b"old")
    assert store(orders, 1, b"new")
    assert not store(orders, 1, b"new")
    assert store(orders, 2, b"new")
    assert stored(orders) == [0, 1, 2, 1, 2]


def test_without_contents_every_number_up_to_the_newest_is_stored(
    orders: tailrace.Topic[Any],
) -> None:
    found = [store(orders, number, None) for number in (5, 3, 5, 6)]
    assert found == [True, False, False, True]


@pytest.mark.parametrize("point", ["before", "after"])
def test_an_unknown_outcome_stores_nothing_twice(
    backend: FaultyBackend, orders: tailrace.Topic[Any], point: str
) -> None:
    setattr(backend, point, once(unknown))
    store(orders, 0)
    assert stored(orders) == [0]


def test_of_two_drivers_that_commit_one_batch_at_once_one_stores_it(
    backend: FaultyBackend, orders: tailrace.Topic[Any]
) -> None:
    def other_driver() -> None:
        assert store(orders, 0)
        assert store(orders, 1)

    backend.before = once(other_driver)
    assert not store(orders, 0)
    assert stored(orders) == [0, 1]


def test_a_write_that_is_never_stored_is_an_error(
    backend: FaultyBackend, orders: tailrace.Topic[Any]
) -> None:
    def fail(transaction: Transaction) -> None:
        if transaction.appends:
            unknown()

    backend.before = fail
    with pytest.raises(BackendUnavailable, match=f"not stored in {ATTEMPTS_MAX} attempts"):
        store(orders, 0)
    assert stored(orders) == []


def test_the_newest_writes_are_remembered() -> None:
    writes = StoredWrites({})
    for number in range(HISTORY_MAX + 50):
        writes = StoredWrites.decode(writes.plus(WriteId("q", number, b"c")).encode())
    assert sorted(writes.contents) == list(range(50, HISTORY_MAX + 50))
