"""A shard has at most its part of `concurrency_total` under way, whatever becomes of its calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from typing import Any

import pytest

from tailrace import Delivery
from tailrace.group.protocol.events import Drained
from tailrace.subscription.shard.machine import ShardMachine
from tailrace.subscription.worker.runners import loop_calls
from tests.support.shards import FAILED
from tests.support.waiting import until
from tests.support.workers import Office
from tests.unit.subscription.worker.test_worker_machine import Worker, after_a_kill, filled


def limited(worker: Worker, most: int | None) -> Worker:
    """Let each shard of a worker have at most so many calls."""
    for owned in worker.machine.shards.values():
        owned.machine.follow(replace(owned.machine.options, calls_max=most))
    return worker


def machine(worker: Worker, name: str) -> ShardMachine:
    return worker.machine.shards[name].machine


def test_each_shard_has_at_most_its_part_and_the_worker_its_slots() -> None:
    worker = limited(Worker(filled(concurrency=8), 0, 1), 3)
    calls = worker.calls()
    assert sorted(owned.name for owned, _ in calls) == ["0.0"] * 3 + ["0.1"] * 3
    worker.finish(*calls[0])
    assert [owned.name for owned, _ in worker.calls()] == [calls[0][0].name]


def test_a_part_that_becomes_smaller_holds_once_calls_have_ended() -> None:
    worker = limited(Worker(filled(shards=1, concurrency=8), 0), 3)
    first, second, third = worker.calls()
    limited(worker, 1)
    worker.finish(*first)
    worker.finish(*second)
    assert worker.calls() == []
    worker.finish(*third)
    assert len(worker.calls()) == 1


def test_a_call_with_several_messages_takes_one_place() -> None:
    worker = limited(Worker(filled(shards=1, concurrency=8), 0), 2)
    owned = worker.machine.shards["0.0"]
    owned.owner.advance()
    found = worker.machine.next_call()
    assert found is not None
    first = found[1]
    joined = worker.machine.take_more(owned, first, 3)
    assert len(joined) == 3
    assert len(worker.calls()) == 1
    for turn in (first, *joined[:2]):
        worker.finish(owned, turn)
    assert worker.calls() == []
    worker.finish(owned, joined[2])
    assert len(worker.calls()) == 1


def test_messages_that_are_called_again_one_by_one_take_a_place_each() -> None:
    worker = limited(Worker(filled(shards=1, concurrency=8), 0), 2)
    owned = worker.machine.shards["0.0"]
    owned.owner.advance()
    found = worker.machine.next_call()
    assert found is not None
    turns = [found[1], *worker.machine.take_more(owned, found[1], 3)]
    worker.machine.split(owned, turns)
    again = worker.calls()
    assert len(again) == 2
    assert {turn for _, turn in again} <= set(turns)


def test_fewer_calls_are_prepared_ahead_so_that_a_kill_leaves_fewer_suspects() -> None:
    worker = limited(Worker(filled(shards=1, concurrency=8), 0), 1)
    assert machine(worker, "0.0").options.calls_ahead == 4


def test_a_call_that_was_given_up_keeps_its_place_while_it_runs() -> None:
    worker = limited(Worker(filled(shards=1), 0), 1)
    ((owned, turn),) = worker.calls()
    worker.machine.runs_late({"0.0": 1})
    worker.machine.finished(owned, turn, FAILED, now=0.0, now_ms=0, random=0.0)
    owned.owner.commit()
    assert worker.calls() == []
    worker.machine.runs_late({})
    assert len(worker.calls()) == 1


def test_the_next_owner_in_the_process_counts_the_calls_that_were_given_up_before() -> None:
    worker = limited(Worker(filled(shards=1), 0), 1)
    ((owned, turn),) = worker.calls()
    worker.machine.runs_late({"0.0": 1})
    worker.machine.finished(owned, turn, FAILED, now=0.0, now_ms=0, random=0.0)
    worker.machine.lost(owned)
    worker.machine.install("0.0", 2)
    limited(worker, 1)
    assert worker.calls() == []
    worker.machine.runs_late({})
    assert len(worker.calls()) == 1


def test_a_suspect_for_which_there_is_no_place_holds_up_nobody() -> None:
    worker = limited(Worker(after_a_kill(), 0), 1)
    worker.machine.runs_late({"0.0": 1})
    assert worker.calls() == []
    assert not worker.machine.can_call
    worker.machine.runs_late({})
    ((_, suspect),) = worker.calls()
    assert suspect.alone


def drained(worker: Worker) -> list[Any]:
    owned = worker.machine.shards["0.0"]
    assert worker.machine.drain("0.0", owned.epoch) is None
    return [] if not owned.machine.commit_due else worker.commit(owned)


def test_a_shard_moves_only_after_the_calls_that_were_given_up_have_ended() -> None:
    worker = limited(Worker(filled(shards=1), 0), 1)
    ((owned, turn),) = worker.calls()
    worker.machine.runs_late({"0.0": 1})
    worker.finish(owned, turn)
    assert drained(worker) == []
    worker.machine.runs_late({})
    assert any(isinstance(event, Drained) for event in worker.commit(owned))


@pytest.mark.parametrize("ends", ["stopped", "unlimited"])
def test_a_worker_that_ends_or_has_no_limit_does_not_wait_for_them(ends: str) -> None:
    worker = limited(Worker(filled(shards=1), 0), 1 if ends == "stopped" else None)
    calls = worker.calls()
    worker.machine.runs_late({"0.0": 1})
    for call in calls:
        worker.finish(*call)
    if ends == "stopped":
        worker.machine.stop()
    assert any(isinstance(event, Drained) for event in drained(worker))


class Gauge:
    """A handler that counts its calls under way; the first `hung` of them do not end."""

    def __init__(self, hung: int) -> None:
        self.release = threading.Event()
        self.now = self.most = self.calls = 0
        self._hung = hung
        self._mutex = threading.Lock()

    def function(self, delivery: Delivery[Any]) -> None:
        if self._begin():
            self.release.wait(60)
        self._end()

    async def coroutine(self, delivery: Delivery[Any]) -> None:
        hangs = self._begin()
        while hangs and not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        self._end()

    def _begin(self) -> bool:
        with self._mutex:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            return self.calls <= self._hung

    def _end(self) -> None:
        with self._mutex:
            self.now -= 1


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_handlers_that_outlive_their_timeout_count_until_they_end(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_calls, "GRACE_S", 0.05)
    office = Office(concurrency_total=2)
    office.topic.push_many([(f"c{number}", number) for number in range(30)])
    gauge = Gauge(hung=1)
    with office.subscription.start(getattr(gauge, kind), concurrency=8, timeout="60ms") as worker:
        until(lambda: worker.stats().succeeded == 29)
        assert gauge.now == 1
        gauge.release.set()
        until(lambda: worker.stats().succeeded == 30)
    assert gauge.most == 2
