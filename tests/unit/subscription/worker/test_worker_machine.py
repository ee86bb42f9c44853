"""A worker divides its slots among shards, and gives a suspect all of them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.delivery.outcome import SUCCESS
from tailrace.delivery.process_gate import ProcessGate
from tailrace.group.protocol.events import Drained, Lost, Progressed
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.shard.step import StepKind
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.requests.making import Requester, put_requests
from tailrace.subscription.store.requests.selection import LetterSelection
from tailrace.subscription.worker.machine import BACKOFF_S, WorkerMachine
from tailrace.subscription.worker.owned_shard import OwnedShard
from tests.support.shards import FAILED, NAME, REJECTED, Owner, Shop, stored


class ShardOfOwner(OwnedShard):
    """A shard whose steps and commits an `Owner` does."""

    def __init__(self, shop: Shop, unit: str, options: ShardOptions) -> None:
        self.owner = Owner(shop, int(unit.partition(".")[2]))
        super().__init__(unit, self.owner.epoch, options, "w1")
        self.owner.machine = self.machine


class Worker:
    """A worker that owns shards of a shop."""

    def __init__(self, shop: Shop, *shards: int, gate: ProcessGate | None = None) -> None:
        self.notices = self.wakes = 0
        definition = stored(shop.backend).definition
        options = ShardOptions(definition.retry, definition.policy, shop.concurrency)
        self.machine: WorkerMachine[ShardOfOwner] = WorkerMachine(
            "w1",
            options,
            make_shard=lambda unit, epoch: ShardOfOwner(shop, unit, options),
            notify=self._notify,
        )
        if gate is not None:
            self.machine.enter(gate, self._wake)
        for shard in shards:
            self.machine.install(f"0.{shard}", 1)

    def _notify(self) -> None:
        self.notices += 1

    def _wake(self) -> None:
        self.wakes += 1

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


def test_a_call_that_ends_after_its_shard_was_lost_decides_nothing() -> None:
    worker = Worker(filled(), 0, 1)
    lost, turn = worker.calls()[0]
    worker.machine.lost(lost)
    worker.machine.finished(lost, turn, FAILED, now=0.0, now_ms=0, random=0.0)
    assert not lost.machine.commit_due


def test_a_commit_that_is_stored_after_its_shard_was_lost_reports_no_progress() -> None:
    worker = Worker(filled(), 0, 1)
    lost, turn = worker.calls()[0]
    worker.finish(lost, turn)
    commit = lost.machine.start_commit()
    assert commit is not None
    worker.machine.lost(lost)
    assert worker.machine.committed(lost, commit, []) == []
    assert lost.mark == 0


def test_a_suspect_is_called_alone_and_its_outcome_is_stored_before_the_next_call() -> None:
    shop = filled(concurrency=3)
    Worker(shop, 0).calls()  # its worker ends
    worker = Worker(shop, 0, 1)
    first = worker.calls()
    assert len(first) == 1
    assert first[0][1].alone
    worker.finish(*first[0])
    assert worker.machine.next_call() is None
    owned, called = first[0]
    assert owned.machine.alone is called
    owned.owner.commit()
    assert owned.machine.alone is None


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


def after_a_kill(concurrency: int = 3) -> Shop:
    """Return a shop whose only shard has suspects."""
    shop = filled(shards=1, concurrency=concurrency)
    Worker(shop, 0).calls()
    return shop


def test_a_suspect_waits_for_the_calls_of_other_workers_in_its_process() -> None:
    gate = ProcessGate()
    other = Worker(filled(shards=1), 0, gate=gate)
    calls = other.calls()
    worker = Worker(after_a_kill(), 0, gate=gate)
    assert worker.calls() == []
    for call in calls:
        assert worker.wakes == 0
        other.finish(*call)
    assert worker.wakes == 1
    assert [turn.alone for _, turn in worker.calls()] == [True]


def test_no_worker_calls_before_the_suspect_of_another_one_had_its_turn() -> None:
    gate = ProcessGate()
    other = Worker(filled(shards=1), 0, gate=gate)
    first, *_ = other.calls()
    worker = Worker(after_a_kill(), 0, gate=gate)
    worker.calls()
    other.finish(*first)
    assert other.calls() == []


def test_no_worker_calls_until_the_outcome_of_the_suspect_of_another_one_is_stored() -> None:
    gate = ProcessGate()
    worker = Worker(after_a_kill(), 0, gate=gate)
    ((owned, suspect),) = worker.calls()
    other = Worker(filled(shards=1), 0, gate=gate)
    assert other.calls() == []
    worker.finish(owned, suspect)
    assert other.calls() == []
    assert other.wakes == 0
    worker.commit(owned)
    assert other.wakes == 1
    assert other.machine.next_call() is not None


def test_a_worker_with_many_suspects_lets_the_others_call_in_between() -> None:
    gate = ProcessGate()
    worker = Worker(after_a_kill(), 0, gate=gate)
    other = Worker(filled(shards=1), 0, gate=gate)
    called = []
    for _ in range(3):
        ((owned, suspect),) = worker.calls()
        assert other.calls() == []
        worker.finish(owned, suspect)
        worker.commit(owned)
        assert worker.calls() == []
        (call,) = other.calls()
        called.append(call)
        other.finish(*call)
    assert len(called) == 3


def test_a_worker_that_has_nothing_to_call_or_may_not_holds_up_no_suspect() -> None:
    gate = ProcessGate()
    worker = Worker(after_a_kill(), 0, gate=gate)
    ((owned, suspect),) = worker.calls()
    other = Worker(filled(shards=1), 0, gate=gate)
    other.calls()
    worker.finish(owned, suspect)
    worker.commit(owned)
    worker.calls()
    other.machine.forgo()
    assert [turn.alone for _, turn in worker.calls()] == [True]


@pytest.mark.parametrize("end", ["drop", "stop", "leave"])
def test_a_worker_that_ends_or_loses_its_suspects_lets_the_others_call(end: str) -> None:
    gate = ProcessGate()
    other = Worker(filled(shards=1), 0, gate=gate)
    running, *_ = other.calls()
    worker = Worker(after_a_kill(), 0, gate=gate)
    worker.calls()  # it waits
    other.finish(*running)
    if end == "drop":
        worker.machine.drop("0.0", worker.machine.shards["0.0"].epoch)
    else:
        getattr(worker.machine, end)()
    assert len(other.calls()) == 1


def test_calls_that_outlive_their_worker_hold_up_no_suspect() -> None:
    gate = ProcessGate()
    other = Worker(filled(shards=1), 0, gate=gate)
    running = other.calls()
    worker = Worker(after_a_kill(), 0, gate=gate)
    assert worker.calls() == []
    other.machine.leave()
    other.finish(*running[0])
    assert [turn.alone for _, turn in worker.calls()] == [True]


def redelivering(concurrency: int) -> Shop:
    """Return a shop of four shards with healthy messages and dead letters to be redelivered."""
    shop = Shop(partitions=4, shards=4, concurrency=concurrency)
    for number in range(40):
        shop.push(f"dead{number}", number)
    for shard in range(4):
        shop.owner(shard).run(lambda value: REJECTED)
    requester = Requester("ann@host", 1, "dlq redeliver")
    action = RequestAction.REDELIVER
    put_requests(shop.backend, NAME, LetterSelection(), action, requester, now_ms=5)
    for number in range(40):
        shop.push(f"healthy{number}", number)
    return shop


@pytest.mark.parametrize(("concurrency", "letters"), [(8, 4), (3, 1)])
def test_redeliveries_take_at_most_half_of_the_slots_over_all_shards(
    concurrency: int, letters: int
) -> None:
    worker = Worker(redelivering(concurrency), 0, 1, 2, 3)
    calls = worker.calls()
    queues = [turn.queue for _, turn in calls]
    assert (len(queues), queues.count(Queue.DLQ)) == (concurrency, letters)
    letter = next(call for call in calls if call[1].queue is Queue.DLQ)
    worker.finish(*letter)
    (call,) = worker.calls()
    assert call[1].queue is Queue.DLQ


def test_with_one_slot_redeliveries_and_other_messages_take_turns() -> None:
    worker = Worker(redelivering(1), 0)
    queues = []
    for _ in range(12):
        (call,) = worker.calls()
        queues.append(call[1].queue)
        worker.finish(*call)
    assert 3 <= queues.count(Queue.DLQ) <= 6


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
