"""Workers of several subscriptions in one process: a suspect has the process for itself."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tailrace import Delivery, Hub
from tailrace.backend.contract import Transaction
from tailrace.message import Partition
from tailrace.subscription.shard.permits import encode_permits, permits_key
from tailrace.testing import MemoryBackend
from tests.support.waiting import until

NAMES = ("mailer", "crm", "archive")
MESSAGES, SUSPECTS = 60, 12


class Witness:
    """The handler of all subscriptions: it remembers what was in flight beside suspects."""

    def __init__(self) -> None:
        self.beside: list[tuple[str, ...]] = []
        self.calls = 0
        self._in_flight: dict[str, bool] = {}
        self._mutex = threading.Lock()

    def call(self, name: str, delivery: Delivery[Any]) -> None:
        id, suspect = f"{name} {delivery.id}", delivery.offset < SUSPECTS
        with self._mutex:
            if self._in_flight and (suspect or any(self._in_flight.values())):
                self.beside.append((id, *self._in_flight))
            self._in_flight[id] = suspect
        time.sleep(0.001)
        with self._mutex:
            del self._in_flight[id]
            self.calls += 1


@pytest.mark.parametrize("coroutines", [False, True], ids=["threads", "coroutines"])
def test_a_suspect_is_called_with_nothing_in_flight_in_its_process(coroutines: bool) -> None:
    hub, witness = Hub.from_backend(MemoryBackend()), Witness()
    topic = hub.create_topic("orders", partitions=1)
    topic.push_many([(f"c{number}", number) for number in range(MESSAGES)])
    workers = []
    for name in NAMES:
        subscription = hub.create_subscription(name, topic="orders")
        key = permits_key(name, Partition("orders", 0, 0))
        permits = encode_permits("gone", range(SUSPECTS))  # as a worker that was killed leaves them
        hub.backend.commit(Transaction(table={key: permits}))

        def handle(delivery: Delivery[Any], name: str = name) -> None:
            witness.call(name, delivery)

        async def handle_later(delivery: Delivery[Any], name: str = name) -> None:
            witness.call(name, delivery)

        workers.append(subscription.start(handle_later if coroutines else handle, concurrency=4))
    until(lambda: witness.calls == MESSAGES * len(NAMES))
    assert all(worker.close() for worker in workers)
    assert witness.beside == []
