"""A worker whose lease has ended calls nothing, and a damaged partition stops only its shard."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import CorruptBatch
from tailrace.group.runtime.runtime import Runtime
from tailrace.message import Partition
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_worker_whose_lease_has_ended_calls_nothing_until_it_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office, calls = Office(), Calls()
    with office.subscription.start(calls) as worker:
        until(lambda: worker.stats().shards)
        with monkeypatch.context() as ended:
            ended.setattr(Runtime, "until", lambda self, session: 0.0)
            office.topic.push("a1", key="a")
            assert not worker.wait(0.3)
            assert calls.calls == []
        assert until(lambda: calls.done) < 10, "as long as the timeout of a call"


def test_a_damaged_partition_stops_its_own_shard_until_it_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    office, calls = Office(partitions=2), Calls()
    receipts = office.topic.push_many([(f"k{number}", number) for number in range(20)])
    there = [number for number, receipt in enumerate(receipts) if receipt.partition == 0]
    log = office.hub.backend.log
    right = log.read

    def read(partition: Partition, *arguments: Any) -> Any:
        if partition == Partition("orders", 0, 0):
            raise CorruptBatch(str(partition), 0, 1, "0.log", "a wrong checksum")
        return right(partition, *arguments)

    with monkeypatch.context() as damaged:
        damaged.setattr(log, "read", read)
        worker = office.subscription.start(calls)
        calls.wait_done(20 - len(there))
        assert not worker.wait(0.3)
        assert not set(calls.done) & set(there)
    with worker:
        calls.wait_done(20)
