"""Hubs with a subscription, and waiting for what its workers do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tailrace import Delivery, Hub, Retry, Subscription, Topic
from tailrace.testing import MemoryBackend
from tests.support.waiting import until

SOON = Retry(attempts=3, first="10ms", max="20ms")


class Office:
    """A hub in memory with a topic and a subscription."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        retry: Retry = SOON,
        backend: MemoryBackend | None = None,
        **options: Any,
    ) -> None:
        self.hub = Hub.from_backend(backend or MemoryBackend())
        self.topic: Topic[Any] = self.hub.create_topic("orders", partitions=partitions)
        self.subscription: Subscription = self.hub.create_subscription(
            "mailer", topic="orders", retry=retry, **options
        )


class Calls:
    """A handler that records its calls, and does for a value what a test asks for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, int]] = []
        """The value and the number of the attempt of each call, in order."""
        self.done: list[Any] = []
        """The values that were handled with success, in order."""
        self._acts: dict[Any, Callable[[Delivery[Any]], object]] = {}
        self._mutex = threading.Lock()

    def when(self, value: Any, act: Callable[[Delivery[Any]], object]) -> None:
        """Call this function for a value."""
        self._acts[value] = act

    def fails(self, value: Any, times: int, error: Exception | None = None) -> None:
        """Raise an error for the first attempts of a value."""

        def act(delivery: Delivery[Any]) -> None:
            if delivery.attempt <= times:
                raise error or RuntimeError("no stock")

        self.when(value, act)

    def __call__(self, delivery: Delivery[Any]) -> None:
        value = delivery.value
        with self._mutex:
            self.calls.append((value, delivery.attempt))
        act = self._acts.get(value)
        if act is not None:
            act(delivery)
        with self._mutex:
            self.done.append(value)

    def wait_done(self, count: int) -> None:
        """Wait until this number of values was handled."""
        until(lambda: len(self.done) >= count)
