"""Workers in several processes have at most `concurrency_total` calls under way together."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

import tailrace
from tailrace import Delivery
from tests.integration.subscribers import NAME, end, make_hub, push
from tests.support.counting_endpoint import CountingEndpoint, call
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report
from tests.support.waiting import until

TOTAL = 10
KEYS = 100
ROUNDS = count("concurrency_total_rounds", test=1, soak=40)


def work(report: Report, hub_path: Path, port: int) -> None:
    """Call the endpoint with each message until the process is killed or gets SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())

    def handle(delivery: Delivery[int]) -> None:
        call(port, delivery.value)

    with (
        tailrace.open(hub_path) as hub,
        hub.subscription(NAME).start(handle, type=int, concurrency=16) as worker,
    ):
        report(worker.id)
        over.wait()


class Site:
    """A hub whose subscription calls an endpoint, and the processes that work for it."""

    def __init__(self, path: Path, endpoint: CountingEndpoint) -> None:
        self.path = path
        self.endpoint = endpoint
        self.children: list[Child] = []
        self.pushed = 0
        make_hub(path, concurrency_total=TOTAL)

    def join(self) -> None:
        child = Child(work, self.path, self.endpoint.port)
        child.next_report()
        self.children.append(child)

    def kill(self) -> None:
        """Kill the oldest process while as many calls as may be are under way."""
        self.push(300)
        until(lambda: self.endpoint.now == TOTAL)
        list(self.children.pop(0).kill())

    def leave(self) -> None:
        end(self.children.pop(0))

    def push(self, messages: int) -> None:
        with tailrace.open(self.path, sync="none") as hub:
            push(hub, KEYS, self.pushed // KEYS, (self.pushed + messages) // KEYS)
        self.pushed += messages

    def finish(self) -> None:
        """Wait until every message was handled, and end the processes."""
        with tailrace.open(self.path, sync="none") as hub:
            subscription = hub.subscription(NAME)
            until(lambda: not subscription.describe().backlog.mq)
            assert subscription.describe().backlog.dlq == 0
        while self.children:
            self.leave()
        assert self.endpoint.answered.total() >= self.pushed

    def answered(self, more: int) -> None:
        """Push messages, and wait until the endpoint has answered so many calls more."""
        self.push(more + KEYS)
        wanted = self.endpoint.answered.total() + more
        until(lambda: self.endpoint.answered.total() >= wanted)


@pytest.mark.part("subscriptions")
def test_never_more_than_the_total_are_under_way_over_joins_kills_and_leaves(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    with CountingEndpoint(takes_s=0.05) as endpoint:
        site = Site(tmp_path / "hub", endpoint)
        for _ in range(3):
            site.join()
        for _ in range(ROUNDS):
            site.kill()
            site.join()
            site.answered(100)
            site.leave()
            site.answered(100)
            site.join()
            site.kill()
            site.join()
            site.answered(100)
        site.finish()
        what = "rounds of kills, joins and leaves with a total of calls at a time"
        record_evidence("subscriptions", what, ROUNDS, [], int(endpoint.most > TOTAL))
        assert endpoint.most == TOTAL, "all of the calls that are allowed were made at some time"
        assert endpoint.cut_off > 0, "the kills ended calls that were under way"


def test_a_changed_total_is_followed_by_running_workers(tmp_path: Path) -> None:
    with CountingEndpoint(takes_s=0.05) as endpoint:
        site = Site(tmp_path / "hub", endpoint)
        site.join()
        site.join()
        site.answered(200)
        with tailrace.open(site.path) as hub:
            hub.subscription(NAME).update(concurrency_total=4)
            site.answered(200)
            until(lambda: endpoint.now <= 4)
            endpoint.most = 0
            site.answered(200)
            assert endpoint.most == 4
            hub.subscription(NAME).update(concurrency_total="off")
            site.push(1000)
            until(lambda: endpoint.now > TOTAL)
        site.finish()
