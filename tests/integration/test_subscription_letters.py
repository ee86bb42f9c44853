"""Dead letters are redelivered in order and discarded, whatever happens to the workers."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import tailrace
from tailrace import Delivery, Hub, InvalidValue
from tailrace.operations.audit import read_audit
from tests.integration.subscribers import NAME, TOPIC, make_hub, push
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.handler_log import HandlerLog, audit, calls_by_key
from tests.support.processes import Child, Report
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

KILLS = count("redelivery_kills", test=4, soak=40)
SEED = 5


class Desk:
    """A handler that refuses a key until it is mended."""

    def __init__(self, directory: Path) -> None:
        self.log = HandlerLog(directory / "log")
        self.broken = True

    def __call__(self, delivery: Delivery[int]) -> None:
        failing = self.broken and delivery.key == "k0"
        self.log.write(delivery, succeeded=not failing)
        if failing:
            raise ConnectionError("the warehouse does not answer")


def dead(hub: Hub) -> list[int]:
    """Return the values of the dead letters, in order."""
    return [int(letter.message.value) for letter in hub.subscription(NAME).dead_letters.list(1000)]


@pytest.mark.timeout(120)
def test_a_key_is_redelivered_in_order_while_its_messages_keep_coming(tmp_path: Path) -> None:
    make_hub(tmp_path / "hub", partitions=2)
    desk = Desk(tmp_path)
    with tailrace.open(tmp_path / "hub") as hub:
        subscription = hub.subscription(NAME)
        receipts = push(hub, 2, 0, 20)
        with subscription.start(desk, type=int):
            until(lambda: len(dead(hub)) == 20)
            desk.broken = False
            request = subscription.dead_letters.redeliver(key="k0")
            for number in range(20, 60):
                receipts |= push(hub, 2, number, number + 1)
                time.sleep(0.005)
            until(lambda: len(desk.log.succeeded()) == len(receipts))
            until(lambda: not subscription.dead_letters.is_pending(request))
        assert dead(hub) == []
        backlog = subscription.describe().backlog
        assert (backlog.mq, backlog.rq, backlog.dlq, backlog.blocked_keys) == (0, 0, 0, 0)
        lines = [line for line in read_audit(hub, NAME, 1000) if "redeliver" in line.command]
    assert audit(receipts, desk.log).well
    assert len(lines) == 1


@pytest.mark.timeout(120)
def test_a_middle_letter_is_discarded_and_the_others_keep_their_order(tmp_path: Path) -> None:
    make_hub(tmp_path / "hub", partitions=1)
    desk = Desk(tmp_path)
    with tailrace.open(tmp_path / "hub") as hub:
        letters = hub.subscription(NAME).dead_letters
        receipts = push(hub, 1, 0, 5)
        with hub.subscription(NAME).start(desk, type=int):
            until(lambda: len(dead(hub)) == 5)
            discarded = letters.discard(id=receipts["k0", 2].id, reason="a duplicate")
            until(lambda: not letters.is_pending(discarded))
            assert dead(hub) == [0, 1, 3, 4]
            desk.broken = False
            letters.redeliver(key="k0")
            until(lambda: not dead(hub))
    assert calls_by_key(desk.log)["k0"][3:] == [0, 1, 3, 4]


@pytest.mark.timeout(120)
def test_a_letter_behind_others_is_redelivered_alone_only_if_the_order_may_break(
    tmp_path: Path,
) -> None:
    make_hub(tmp_path / "hub", partitions=1)
    desk = Desk(tmp_path)
    with tailrace.open(tmp_path / "hub") as hub:
        letters = hub.subscription(NAME).dead_letters
        receipts = push(hub, 1, 0, 3)
        with hub.subscription(NAME).start(desk, type=int):
            until(lambda: len(dead(hub)) == 3)
            second = receipts["k0", 1].id
            with pytest.raises(InvalidValue, match="break_order"):
                letters.redeliver(id=second)
            assert len(dead(hub)) == 3
            desk.broken = False
            letters.redeliver(id=second, break_order=True)
            until(lambda: dead(hub) == [0, 2])
    assert desk.log.succeeded() == {("k0", 1)}


def work_slowly(report: Report, hub_path: Path, log_path: Path) -> None:
    """Handle messages with success, until the process is killed."""
    log = HandlerLog(log_path)

    def handle(delivery: Delivery[int]) -> None:
        time.sleep(0.01)
        log.write(delivery, succeeded=True)

    with tailrace.open(hub_path) as hub, hub.subscription(NAME).start(handle, type=int) as worker:
        report(worker.id)
        worker.wait()


@pytest.mark.timeout(900)
def test_a_request_survives_the_workers_that_are_killed_in_the_middle_of_it(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    instants = random.Random(SEED)
    make_hub(tmp_path / "hub", partitions=1)
    desk = Desk(tmp_path)
    wrong = 0
    with tailrace.open(tmp_path / "hub") as hub:
        letters = hub.subscription(NAME).dead_letters
        for turn in range(KILLS):
            first = turn * 40
            desk.broken = True
            with hub.subscription(NAME).start(desk, type=int):
                hub.topic(TOPIC, int).push_many([("k0", first + n) for n in range(40)])
                until(lambda: len(dead(hub)) == 40)
            request = letters.redeliver(key="k0")
            child = Child(work_slowly, tmp_path / "hub", tmp_path / "log")
            child.next_report()
            time.sleep(instants.uniform(0.0, 0.6))
            list(child.kill())
            child = Child(work_slowly, tmp_path / "hub", tmp_path / "log")
            until(lambda request=request: not letters.is_pending(request))  # type: ignore[misc]
            assert dead(hub) == []
            list(child.kill())
        lines = [line for line in read_audit(hub, NAME, 1000) if "redeliver" in line.command]
        wrong += len(lines) != KILLS
    first_successes = list(
        dict.fromkeys(line.number for line in desk.log.lines() if line.succeeded)
    )
    wrong += first_successes != sorted(first_successes)
    what = "kill -9 of a worker that redelivers 40 dead letters"
    record_evidence("subscriptions", what, KILLS, [SEED], wrong)
    assert first_successes == list(range(40 * KILLS))
    assert len(lines) == KILLS, "each request is audited once"
