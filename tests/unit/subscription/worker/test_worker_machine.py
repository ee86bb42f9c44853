"""A worker divides its slots among shards, and gives a suspect all of them."""

from __future__ import annotations

from typing import Any

from tailrace.delivery.outcome import SUCCESS
from tailrace.group.protocol.events import Drained, Lost, Progressed
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.step import StepKind
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.worker.machine import BACKOFF_S, WorkerMachine
from tailrace.subscription.worker.owned_shard import OwnedShard
from tests.support.shards import Owner, Shop, stored


class ShardOfOwner(OwnedShard):
    """A shard whose steps and commits an `Owner` does."""

    def __init__(self, shop: Shop, unit: str, options: ShardOptions) -> None:
        self.owner = Owner(shop, int(unit.partition(".")[2]))
        super().__init__(unit, self.owner.epoch, options, "w1")
        self.owner.machine = self.machine


class Worker:
    """A worker that owns shards of a shop."""

    def __init__(self, shop: Shop, *shards: int) -> None:
        self.notices = 0
        definition = stored(shop.backend).definition
        options = ShardOptions(definition.retry, definition.policy, shop.concurrency)
        self.machine: WorkerMachine[ShardOfOwner] = WorkerMachine(
            "w1",
            options,
            make_shard=lambda unit, epoch: ShardOfOwner(shop, unit, options),
            notify=self._notify,
        )
        for shard in shards:
            self.machine.install(f"0.{shard}", 1)

    def _notify(self) -> None:
        self.notices += 1

    def calls(self) -> list[tuple[ShardOfOwner, Turn]]:
        """Begin all calls that are possible."""
        found = []
        while True:
            for owned in list(self.machine.shards.values()):
                owned.owner.advance()
            call = self.machine.next_call()
            if call is not None:
                found.append(call)
            elif not self.machine.to_commit(0.0):
                return found

    def finish(self, owned: ShardOfOwner, turn: Turn) -> None:
        self.machine.finished(owned, turn, SUCCESS, now=0.0, now_ms=0, random=0.0)

    def commit(self, owned: ShardOfOwner) -> list[Any]:
        commit = owned.machine.start_commit()
        assert commit is not None
        return self.machine.committed(owned, commit, [])


def filled(shards: int = 2, concurrency: int = 4) -> Shop:
    shop = Shop(partitions=shards, shards=shards, concurrency=concurrency)
    for number in range(40):
        shop.push(f"k{number}", number)
    return shop


def test_the_slots_are_those_of_the_worker_and_shards_take_turns() -> None:
    worker = Worker(filled(), 0, 1)
    calls = worker.calls()
    assert [owned.name for owned, _ in calls] == ["0.0", "0.1", "0.0", "0.1"]
    worker.finish(*calls[0])
    assert len(worker.calls()) == 1


def test_a_call_of_a_lost_shard_keeps_its_slot_until_it_ends() -> None:
    worker = Worker(filled(), 0, 1)
    calls = worker.calls()
    lost = calls[0][0]
    assert worker.machine.lost(lost) == [Lost("w1", lost.name, lost.epoch)]
    assert worker.machine.lost(lost) == []
    assert worker.machine.in_flight == 4
    worker.finish(*calls[0])
    assert worker.machine.in_flight == 3
    assert [owned.name for owned, _ in worker.calls()] == ["0.1"]


def test_a_suspect_is_called_alone_and_its_outcome_is_stored_before_the_next_call() -> None:
    shop = filled(concurrency=3)
    Worker(shop, 0).calls()  # its worker ends
    worker = Worker(shop, 0, 1)
    first = worker.calls()
    assert len(first) == 1
    assert first[0][1].alone
    worker.finish(*first[0])
    assert worker.machine.next_call() is None
    owned = first[0][0]
    owned.owner.commit()
    assert not owned.machine.holds_alone


def test_a_suspect_waits_until_all_calls_have_ended() -> None:
    shop = filled(concurrency=3)
    Worker(shop, 0).calls()
    worker = Worker(shop, 1)
    calls = worker.calls()
    worker.machine.install("0.0", 1)
    assert worker.calls() == []
    for call in calls:
        worker.finish(*call)
    assert [turn.alone for _, turn in worker.calls()] == [True]


def test_a_suspect_whose_shard_was_lost_has_the_worker_until_its_call_ends() -> None:
    shop = filled(concurrency=3)
    Worker(shop, 0).calls()
    worker = Worker(shop, 0, 1)
    (call,) = worker.calls()
    worker.machine.lost(call[0])
    assert worker.calls() == []
    worker.finish(*call)
    assert len(worker.calls()) == 3


def test_a_shard_is_drained_once_its_calls_have_ended_and_everything_is_stored() -> None:
    worker = Worker(filled(shards=1), 0)
    calls = worker.calls()
    owned = calls[0][0]
    assert worker.machine.drain(owned.name, owned.epoch) is None
    assert worker.machine.to_commit(0.0) == []
    for call in calls:
        worker.finish(*call)
    assert worker.machine.next_call() is None
    assert worker.machine.to_commit(0.0) == [owned]
    kinds = [type(event) for event in worker.commit(owned)]
    assert kinds == [Progressed, Drained]
    assert worker.machine.to_commit(0.0) == []


def test_a_shard_that_was_not_loaded_or_is_not_owned_is_drained_at_once() -> None:
    worker = Worker(filled(shards=1), 0)
    owned = worker.machine.shards["0.0"]
    assert worker.machine.drain("0.0", owned.epoch) == Drained("w1", "0.0", owned.epoch, 0)
    assert owned.machine.step(0.0).kind is StepKind.WAIT
    assert worker.machine.drain("0.7", 3) == Drained("w1", "0.7", 3, 0)


def test_after_a_failure_of_the_store_a_shard_waits_a_while() -> None:
    worker = Worker(filled(shards=1), 0)
    (owned, turn), *_ = worker.calls()
    worker.finish(owned, turn)
    worker.machine.failed(owned, 1.0)
    assert worker.machine.unsaved(1.0) == []
    assert worker.machine.due_at(1.0) == 1.0 + BACKOFF_S
    assert worker.machine.unsaved(1.0 + BACKOFF_S) == [owned]


def test_events_have_a_waiting_driver_check_again() -> None:
    worker = Worker(filled(shards=1), 0)
    before = worker.notices, worker.machine.version
    worker.machine.redefine()
    worker.machine.wake([])
    worker.machine.drop("0.0", worker.machine.shards["0.0"].epoch)
    assert worker.notices == before[0] + 3
    assert worker.machine.version == before[1] + 3
    assert worker.machine.shards == {}
