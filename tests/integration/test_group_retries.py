"""Workers whose handlers fail: the speed of other keys, order, and kills between letter and ack."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import tailrace
from tailrace import Retry
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.group.store.dead_letters import dead_letter_topic
from tailrace.hub.hub import Hub
from tests.support.counts import count, soaking
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report

pytestmark = pytest.mark.part("groups")

KEYS = 100
KILLS = count("retry_kills", test=3, soak=60)
FAILS_S = count("retry_fails_s", test=3, soak=300)
REFUSALS_MIN = 3
LONGER_S = 15
"""How much longer the two are compared if one of them seems to be slow."""
SLICE_S = 0.25
WORK_S = 50e-6
RATIO_MIN = 0.95 if soaking() else 0.7
"""A test run shares its processor with others; without this it was 0.1 with nothing to do."""


class Worker:
    """A consumer that handles messages while it has its turn, and counts them.

    It refuses the messages of one key until `finish` is called. Until then, each message takes it
    some time.
    """

    def __init__(self, hub: Hub, group: str, refused: str | None) -> None:
        self.refused = refused
        self.work_s = WORK_S
        self.turn = threading.Event()
        self.handled = 0
        self.refusals = 0
        self.out_of_order: list[tuple[str | None, int]] = []
        self._last: dict[str | None, int] = {}
        self._consumer = hub.topic("orders", int).tail(group=group)
        self._consumer.start(self._handle, retry=Retry(first="50ms", max="1s"))

    @property
    def running(self) -> bool:
        return self._consumer.running

    @property
    def handled_last(self) -> dict[str | None, int]:
        """The last value of each key."""
        return self._last

    def finish(self) -> None:
        """Refuse nothing any more, and handle what is left."""
        self.refused, self.work_s = None, 0.0
        self.turn.set()

    def stop(self) -> None:
        """End the worker."""
        self._consumer.shutdown()

    def _handle(self, delivery: tailrace.Delivery[int]) -> None:
        self.turn.wait()
        key = delivery.key
        if key == self.refused:
            self.refusals += 1
            raise ConnectionError("the warehouse does not answer")
        done = time.perf_counter() + self.work_s
        if self._last.get(key, -1) >= delivery.value:
            self.out_of_order.append((key, delivery.value))
        self._last[key] = delivery.value
        while time.perf_counter() < done:
            pass
        self.handled += 1


@pytest.mark.timeout(900)
def test_a_key_that_fails_for_minutes_slows_no_other_key_and_keeps_its_order(
    tmp_path: Path, record_evidence: RecordEvidence, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "tailrace.group")
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        orders = hub.create_topic("orders", int, partitions=1)
        healthy, failing = Worker(hub, "healthy", None), Worker(hub, "failing", "k7")
        handled, pushed = Counter[str](), 0
        seconds = {"healthy": 0.0, "failing": 0.0}

        def ratio() -> float:
            speeds = [handled[name] / (seconds[name] or 1) for name in ("failing", "healthy")]
            return speeds[0] / (speeds[1] or 1)

        end = time.monotonic() + FAILS_S
        # Other work on the machine may slow one of them for a while, a failing key does so always.
        while (left_s := end - time.monotonic()) > 0 or (
            left_s > -LONGER_S and (ratio() < RATIO_MIN or failing.refusals < REFUSALS_MIN)
        ):
            for name, worker in (("healthy", healthy), ("failing", failing)):
                ahead = max(healthy.handled, failing.handled) + 15_000
                while pushed < ahead:
                    orders.push_many([(f"k{n % KEYS}", n) for n in range(pushed, pushed + 5_000)])
                    pushed += 5_000
                before, began = worker.handled, time.monotonic()
                worker.turn.set()
                time.sleep(SLICE_S)
                handled[name] += worker.handled - before
                seconds[name] += time.monotonic() - began
                worker.turn.clear()
        assert failing.running
        assert failing.refusals >= REFUSALS_MIN
        assert "k7" not in failing.handled_last
        failing.finish()
        healthy.finish()
        deadline = time.monotonic() + 300
        while min(healthy.handled, failing.handled) < pushed:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        failing.stop()
        healthy.stop()
    assert failing.out_of_order == healthy.out_of_order == []
    assert failing.handled_last == healthy.handled_last
    print(f"other keys were handled at {ratio():.3f} of the speed of a worker without failures")
    record_evidence("groups", f"seconds in which one of {KEYS} keys failed", FAILS_S, [], 0)
    assert ratio() >= RATIO_MIN, f"{ratio():.3f} of {handled['healthy']:,}"


def _work(report: Report, directory: Path) -> None:
    """Handle messages until killed; those of some keys become dead letters."""

    def handler(delivery: tailrace.Delivery[int]) -> None:
        report(delivery.id)
        if delivery.value % 5 == 0:
            raise ValueError("no stock")

    with tailrace.open(directory, sync="none") as hub:
        consumer = hub.topic("orders", int).tail(group="billing")
        consumer.run(handler, retry=Retry(attempts=1), on_failed="dead-letter")


def test_a_worker_killed_between_letter_and_acknowledgement_loses_and_doubles_no_letter(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    directory, draw = tmp_path / "hub", random.Random(7)
    with tailrace.open(directory, sync="none") as hub:
        orders = hub.create_topic("orders", int, partitions=2)
        expected, number = set[str](), 0
        for _ in range(KILLS):
            receipts = orders.push_many([(f"k{n % 9}", n) for n in range(number, number + 200)])
            expected |= {each.id for n, each in enumerate(receipts, number) if n % 5 == 0}
            number += 200
            child = Child(_work, directory)
            for _ in range(draw.randint(1, 150)):
                child.next_report()
            list(child.kill())
        child = Child(_work, directory)
        while sum(each.lag for each in hub.group("billing").lag()):
            list(child.reports_for(0.2))
        list(child.kill())
        letters = Mailbox(hub.topic(dead_letter_topic("billing")).view, "billing")
        found = Counter(letter.origin for letter in letters.waiting())
    record_evidence("groups", "kills of workers that store dead letters", KILLS, [7], 0)
    assert set(found) == expected
    assert set(found.values()) == {1}
