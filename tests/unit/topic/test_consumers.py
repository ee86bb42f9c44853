"""Registered consumers keep the records that they have not acknowledged."""

from __future__ import annotations

from tailrace.backend.contract import Backend, Change, StorageTopic, Transaction
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.consumers import LowWater, consumers, low_water, register, unregister
from tailrace.topic.ledger import Progress

P0, P1 = (Partition("lake", 0, number) for number in range(2))


def _backend() -> MemoryBackend:
    backend = MemoryBackend()
    backend.store.commit(Change(create=(StorageTopic("lake", 0, 2),)))
    return backend


def _ack(backend: Backend, consumer: str, partition: Partition, *ranges: tuple[int, int]) -> None:
    progress = Progress(consumer, partition)
    for start, end in ranges:
        progress.ack(start, end)
    backend.commit(Transaction(table=progress.writes()))


def test_consumers_are_registered_once_and_removed_with_their_topic() -> None:
    store = _backend().store
    assert register(store, "lake", "lake/crm")
    assert register(store, "lake", "mailer")
    assert register(store, "lakes", "other")
    assert not register(store, "lake", "mailer")
    assert consumers(store, "lake") == ["lake/crm", "mailer"]
    unregister(store, "lake", "lake/crm")
    unregister(store, "lake", "never there")
    assert consumers(store, "lake") == ["mailer"]
    assert consumers(store, "lakes") == ["other"]


def test_without_a_consumer_nothing_counts_as_consumed() -> None:
    backend = _backend()
    _ack(backend, "lake/crm", P0, (0, 10))
    assert low_water(backend, P0) is None


def test_the_slowest_consumer_of_each_partition_is_found() -> None:
    backend = _backend()
    for name in ("lake/crm", "lake/files"):
        register(backend.store, "lake", name)
    _ack(backend, "lake/crm", P0, (0, 10))
    _ack(backend, "lake/files", P0, (0, 7), (8, 100))
    _ack(backend, "lake/files", P1, (0, 7))
    assert low_water(backend, P0) == LowWater("lake/files", 7)
    assert low_water(backend, P1) == LowWater("lake/crm", 0)
    unregister(backend.store, "lake", "lake/crm")
    assert low_water(backend, P1) == LowWater("lake/files", 7)
