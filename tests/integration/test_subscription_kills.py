"""Workers that are killed, stopped or end themselves: nothing is lost, and order holds."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

import tailrace
from tailrace import BackendUnavailable, Hub, HubSettings, Receipt, Retry
from tests.integration.subscribers import (
    FAILING_KEY,
    Work,
    dead_letters,
    end,
    make_hub,
    push,
    queued_twice,
    start,
    work,
    work_failing_in_one_key,
    work_until_poisoned,
)
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.handler_log import HandlerLog, audit
from tests.support.processes import Child, stop
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

KILLS = count("subscription_kills", test=6, soak=200)
FROZEN_S = count("subscription_frozen_s", test=5, soak=20)
SEED = 11
KEYS = 12
EACH = 12
"""The number of messages of each key that are pushed before a kill."""
PATIENTLY = Retry(8, first="10ms", max="20ms")
"""An attempt that was alone in a worker when that was killed counts as failed."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", ["block", "continue"])
def test_workers_that_are_killed_at_any_instant_lose_nothing_and_keep_the_order(
    tmp_path: Path, policy: str, record_evidence: RecordEvidence
) -> None:
    instants = random.Random(SEED)
    make_hub(tmp_path / "hub", shards=2, on_dead_letter=policy, retry=PATIENTLY)
    act = work_failing_in_one_key if policy == "block" else work
    log, receipts, number = HandlerLog(tmp_path / "log"), dict[tuple[str, int], Receipt](), 1
    kills = KILLS // 2
    with tailrace.open(tmp_path / "hub") as hub:
        for _ in range(kills):
            receipts |= push(hub, KEYS, number, number + EACH)
            number += EACH
            child = start(act, tmp_path / "hub", tmp_path / "log", 8)
            time.sleep(instants.uniform(0.0, 0.8))
            list(child.kill())
        finish(hub, tmp_path, receipts, act)
        dead = dead_letters(hub)
        result, twice = audit(receipts, log, dead), queued_twice(hub)
    wrong = len(result.lost | result.displaced) + len(result.disordered) + len(twice)
    what = f"kill -9 of a worker of a subscription under failures, {policy}"
    record_evidence("subscriptions", what, kills, [SEED], wrong)
    assert result.lost == result.displaced == result.disordered == frozenset()
    assert twice == []
    letters = {key: [number for of, number in dead if of == key] for key, _ in dead}
    assert all(numbers == sorted(numbers) for numbers in letters.values())
    if policy == "continue":
        assert all(number % 23 == 0 for _, number in dead), "only those that always fail"
    else:
        assert letters == {FAILING_KEY: [*range(23, number)]}, "all other keys have recovered"


def finish(hub: Hub, directory: Path, receipts: dict[tuple[str, int], Receipt], act: Work) -> None:
    """Let a worker handle what is left."""
    log = HandlerLog(directory / "log")
    child = start(act, directory / "hub", directory / "log", 8)
    until(lambda: len(log.succeeded() | dead_letters(hub).keys()) == len(receipts), within_s=300.0)
    end(child)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_payload_that_kills_its_worker_is_parked_and_none_that_was_beside_it(
    tmp_path: Path, attempts: int
) -> None:
    retry = Retry(attempts, first="10ms", max="10ms")
    make_hub(tmp_path / "hub", partitions=2, shards=1, retry=retry)
    log = HandlerLog(tmp_path / "log")
    with tailrace.open(tmp_path / "hub") as hub:
        receipts = push(hub, 40, 1, 3)
        hub.topic("orders", int).push(-1, key="poison")
        receipts |= push(hub, 40, 3, 5)
        deaths = 0
        while (child := work_until_ended(hub, tmp_path)) is None:
            deaths += 1
            assert deaths <= attempts + 1, "the first end of a worker does not tell which it was"
        until(lambda: len(log.succeeded()) == len(receipts))
        list(child.kill())
        dead = dead_letters(hub)
    assert list(dead) == [("poison", -1)]
    assert dead["poison", -1] == "the worker ended during the call"
    assert audit(receipts, log).well


def work_until_ended(hub: Hub, directory: Path) -> Child | None:
    """Run a worker until it ends, or until there is a dead letter; return it if it works on."""
    child = start(work_until_poisoned, directory / "hub", directory / "log", 64)
    until(lambda: child.exit_code is not None or dead_letters(hub))
    return child if child.exit_code is None else None


def freeze(child: Child, hub_path: Path) -> None:
    """Stop a process, but not within a commit: that would hold up the commits of all."""
    impatient = HubSettings(lock_timeout=timedelta(milliseconds=500))
    while True:
        stop(child.pid)
        try:
            tailrace.open(hub_path, settings=impatient).close()
        except BackendUnavailable:
            os.kill(child.pid, signal.SIGCONT)
            time.sleep(0.01)
        else:
            return


@pytest.mark.timeout(300)
def test_a_worker_that_was_stopped_during_a_call_writes_nothing_late(tmp_path: Path) -> None:
    make_hub(tmp_path / "hub", shards=2, on_dead_letter="continue")
    log = HandlerLog(tmp_path / "log")
    with tailrace.open(tmp_path / "hub") as hub:
        receipts = push(hub, KEYS, 1, 60)
        frozen = start(work, tmp_path / "hub", tmp_path / "log", 8)
        until(lambda: len(log.lines()) > 100)
        freeze(frozen, tmp_path / "hub")
        other = start(work, tmp_path / "hub", tmp_path / "log", 8)
        until(
            lambda: len(log.succeeded() | dead_letters(hub).keys()) == len(receipts),
            within_s=120.0,
        )
        time.sleep(FROZEN_S)
        os.kill(frozen.pid, signal.SIGCONT)
        receipts |= push(hub, KEYS, 60, 80)
        until(lambda: len(log.succeeded() | dead_letters(hub).keys()) == len(receipts))
        for child in (frozen, other):
            end(child)
        dead = dead_letters(hub)
        assert queued_twice(hub) == []
    assert {number % 23 for _, number in dead} == {0}
    assert audit(receipts, log, dead).well
