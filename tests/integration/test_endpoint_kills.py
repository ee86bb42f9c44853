"""Workers of an endpoint that are killed and stopped: order and loss, by the endpoint's own log."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace import Hub, Receipt, Retry
from tests.integration.endpoint_workers import NAME, TOPIC, Receiver, expected, start
from tests.integration.subscribers import end
from tests.integration.test_subscription_kills import freeze
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.http_endpoint import OK, Answer, HttpEndpoint, Posted, silent
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

KILLS = count("endpoint_kills", test=5, soak=100)
FROZEN_S = count("endpoint_frozen_s", test=3, soak=20)
SEED = 16
KEYS = 12
EACH = 10
RETRY = Retry(None, first="10ms", max="20ms")


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def endpoint(receiver: Receiver) -> Iterator[HttpEndpoint]:
    with HttpEndpoint(receiver.answer) as server:
        yield server


def make_hub(path: Path, endpoint: HttpEndpoint) -> Hub:
    hub = tailrace.open(path, sync="none")
    hub.create_topic(TOPIC, int, partitions=4)
    hub.create_subscription(
        NAME, topic=TOPIC, shards=2, retry=RETRY, endpoint=endpoint.url, allow_private=True
    )
    return hub


def push(hub: Hub, first: int, after: int) -> dict[tuple[str, int], Receipt]:
    pairs = [(f"k{key}", number) for number in range(first, after) for key in range(KEYS)]
    return dict(zip(pairs, hub.topic(TOPIC, int).push_many(pairs), strict=True))


@pytest.mark.timeout(1800)
def test_killed_workers_lose_nothing_and_keep_the_order_at_the_endpoint(
    tmp_path: Path, endpoint: HttpEndpoint, receiver: Receiver, record_evidence: RecordEvidence
) -> None:
    instants = random.Random(SEED)
    receipts: dict[tuple[str, int], Receipt] = {}
    with make_hub(tmp_path / "hub", endpoint) as hub:
        for number in range(KILLS):
            receipts |= push(hub, number * EACH, (number + 1) * EACH)
            child = start(tmp_path / "hub")
            time.sleep(instants.uniform(0.0, 0.6))
            list(child.kill())
            if number == KILLS // 2:
                hub.topic(TOPIC).scale(8)
        last = start(tmp_path / "hub")
        until(lambda: receiver.count == len(receipts), within_s=300.0)
        end(last)
    wrong = len(receiver.reordered) + (dict(receiver.effects) != expected(receipts))
    record_evidence(
        "subscriptions", "kill -9 of a worker that delivers over HTTP", KILLS, [SEED], wrong
    )
    assert receiver.reordered == []
    assert dict(receiver.effects) == expected(receipts)


@pytest.mark.timeout(300)
def test_a_worker_that_was_stopped_has_no_late_effect_at_the_endpoint(
    tmp_path: Path, endpoint: HttpEndpoint, receiver: Receiver
) -> None:
    with make_hub(tmp_path / "hub", endpoint) as hub:
        receipts = push(hub, 0, 60)
        frozen = start(tmp_path / "hub")
        until(lambda: receiver.count > 100)
        freeze(frozen, tmp_path / "hub")
        other = start(tmp_path / "hub")
        until(lambda: receiver.count == len(receipts), within_s=120.0)
        time.sleep(FROZEN_S)
        os.kill(frozen.pid, signal.SIGCONT)
        receipts |= push(hub, 60, 80)
        until(lambda: receiver.count == len(receipts), within_s=120.0)
        for child in (frozen, other):
            end(child)
    assert receiver.reordered == []
    assert dict(receiver.effects) == expected(receipts)


@pytest.mark.timeout(300)
def test_a_subscription_keeps_its_rate_beside_an_endpoint_that_takes_30_seconds(
    tmp_path: Path,
) -> None:
    def after_a_while(posted: Posted, before: int) -> Answer:
        time.sleep(0.005)
        return OK

    messages = 400
    alone_s, beside_s = [], []
    with (
        HttpEndpoint(after_a_while) as quick,
        HttpEndpoint(lambda posted, before: silent) as slow,
        tailrace.open(tmp_path / "hub", sync="none") as hub,
    ):
        for name, endpoint in (("quick", quick), ("slow", slow)):
            topic = hub.create_topic(name, int, partitions=4)
            hub.create_subscription(name, topic=name, endpoint=endpoint.url, allow_private=True)
            topic.push_many([(f"k{number}", number) for number in range(100)])
        with hub.subscription("quick").start(concurrency=4) as worker:
            until(lambda: worker.stats().succeeded == 100)

            def deliver() -> float:
                done = worker.stats().succeeded + messages
                pairs = [(f"k{number}", number) for number in range(messages)]
                hub.topic("quick", int).push_many(pairs)
                return until(lambda: worker.stats().succeeded == done)

            for _ in range(4):
                alone_s.append(deliver())
                with hub.subscription("slow").start(drain_timeout="0s") as held:
                    until(lambda held=held: held.stats().in_flight == 16)  # type: ignore[misc]
                    beside_s.append(deliver())
    assert min(alone_s) >= 0.9 * min(beside_s)
