"""The shards of a worker follow the definition of their subscription."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tailrace.backend.contract import Chunk, Transaction
from tailrace.delivery.outcome import SUCCESS
from tailrace.delivery.retry import Retry
from tailrace.errors import Busy, Conflict, CorruptBatch, DiskFull, Error
from tailrace.message import Partition
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.store.lifecycle import update_settings
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.shard_io import ShardDriver, ShardIO, StoredShard
from tailrace.testing.clock import ManualClock
from tests.support.shards import NAME, Shop, fails, fence_of, stored


def _ignore(*events: Any) -> None:
    """A worker that has no runtime."""


class OneShard:
    """A worker that has the only shard of a shop."""

    def __init__(self, shop: Shop) -> None:
        shop.owner()
        self.errors: list[Error] = []
        """The errors of commits that were not stored."""
        definition = stored(shop.backend).definition
        options = ShardOptions(definition.retry, definition.policy)
        self.machine: WorkerMachine[StoredShard] = WorkerMachine(
            "w1",
            options,
            make_shard=lambda unit, epoch: StoredShard(unit, epoch, options, "w1"),
            notify=_ignore,
        )
        driver: ShardDriver[StoredShard] = ShardDriver(
            lock=nullcontext(),
            clock=ManualClock(),
            await_records=_ignore,
            post=_ignore,
            lose=_ignore,
            stored=lambda owned, commit: None,
            not_stored=self.errors.append,
            decode=lambda message: int(message.data),
        )
        self.io = ShardIO(self.machine, NAME, shop.backend, driver)
        self.machine.install("0.0", fence_of(shop.backend))
        self.owned = self.machine.shards["0.0"]

    def run(self, now: float = 0.0) -> list[int]:
        """Call everything with success, and return the values."""
        called: list[int] = []
        while True:
            while (work := self.io.next_work(self.owned, now)) is not None:
                work()()
            self.io.commit(self.owned)()
            found = self.machine.next_call()
            if found is None:
                return called
            batch, row = found[1].known_record
            called.append(int(batch.values[row]))
            self.machine.finished(*found, SUCCESS, now=0.0, now_ms=0, random=0.0)


def test_a_filter_that_is_changed_applies_to_what_is_read_afterwards() -> None:
    shop = Shop()
    worker = OneShard(shop)
    shop.push("a", 1)
    assert worker.run() == [1]
    retry = stored(shop.backend).definition.retry
    update_settings(shop.backend, NAME, retry=retry, filter="key == 'b'")
    worker.machine.redefine()
    shop.push("a", 2)
    shop.push("b", 3)
    worker.machine.wake(stored(shop.backend).streams(0).mq)
    assert worker.run() == [3]
    update_settings(shop.backend, NAME, retry=retry, filter="")
    worker.machine.redefine()
    shop.push("a", 4)
    worker.machine.wake(stored(shop.backend).streams(0).mq)
    assert worker.run() == [4]


@pytest.mark.parametrize(
    "error",
    [Busy("the audit was changed", "try again"), Conflict("topic/x", 1, 2), DiskFull("full", "")],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_that_was_refused_for_now_is_reported_and_tried_again(error: Error) -> None:
    shop = Shop()
    worker = OneShard(shop)
    shop.push("a", 1)

    def refuse(transaction: Transaction) -> None:
        raise error

    while (work := worker.io.next_work(worker.owned, 0.0)) is not None:
        work()()
    shop.backend.before = refuse
    worker.io.commit(worker.owned)()
    shop.backend.before = _ignore
    assert worker.errors == [error]
    assert worker.run() == [1]


def test_a_message_that_cannot_be_read_again_stops_its_shard_with_an_error() -> None:
    shop = Shop()
    shop.push("a", 1)
    shop.owner().run(fails(1))
    worker, log = OneShard(shop), shop.backend.log
    load = worker.io.next_work(worker.owned, 0.0)
    assert load is not None
    load()()
    whole = log.read

    def read(partition: Partition, start: int, bytes_max: int, end: int | None = None) -> Chunk:
        records, after = whole(partition, start, bytes_max, end)
        return Chunk(records if partition.topic == "orders" else records.slice(0, 0), after)

    log.read = read  # type: ignore[method-assign]
    with pytest.raises(CorruptBatch, match=r"tailrace.retry-queue.crm/0.0@0 .* not acknowledged"):
        worker.run(60.0)


def test_an_owner_that_takes_over_follows_a_retry_policy_that_was_changed_before() -> None:
    shop = Shop()
    shop.push("a", 1)
    slow = Retry(3, first="1h", max="1h")
    update_settings(shop.backend, NAME, retry=slow, filter=None)
    shop.owner().run(fails(1))
    worker = OneShard(shop)
    retry = Retry(3, first="1s", max="30m")
    update_settings(shop.backend, NAME, retry=retry, filter="")
    while (work := worker.io.next_work(worker.owned, 0.0)) is not None:
        work()()
    assert worker.owned.machine.due == pytest.approx(30 * 60, abs=60)
