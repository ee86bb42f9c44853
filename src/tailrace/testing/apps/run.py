"""A run of an app in a test.

    with run(app) as shop:
        shop.push("orders", Order(1, "c7", 9.5), key="c7")
        shop.until_idle()
        assert [each.value.id for each in shop.deliveries("mailer")] == [1]

Nothing happens but by calls of the test: one thread makes every step, time is virtual, and the
jitter of retries is drawn from a seed. So the same test makes the same run.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, Unpack

from tailrace.app.app import App
from tailrace.app.preparation import create_topic, open_all
from tailrace.clock import utc_time
from tailrace.closing import Closing
from tailrace.delivery.process_gate import ProcessGate
from tailrace.duration import parse_duration
from tailrace.errors import Error, InvalidValue
from tailrace.hub.dead_letters import DeadLetters, LetterConditions
from tailrace.hub.hub import Hub
from tailrace.message import Receipt
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.requests.making import MadeRequest
from tailrace.suggestion import did_you_mean
from tailrace.testing.apps.delivered import DeliveryOutcome, HandledDelivery, HeldMessage
from tailrace.testing.apps.endpoint import SimulatedEndpoint
from tailrace.testing.apps.handling import HandlerCalls
from tailrace.testing.apps.not_idle import NotIdle
from tailrace.testing.apps.subscription_run import SubscriptionRun
from tailrace.testing.arguments import check_count
from tailrace.testing.clock import ManualClock
from tailrace.testing.memory import MemoryBackend
from tailrace.topic.record_builder import Headers, Key

CALLS_MAX: Final = 10_000
"""The most calls of one `until_idle` or `advance`, unless the test allows more."""

_REASON: Final = "a test wanted it"
_REQUEST_S: Final = 0.001

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When runs begin, in virtual time."""


class AppRun(Closing):
    """An app with its hub in memory, its handlers, and a clock that the run sets.

    Handlers are called one at a time, in the thread of the test. For one thread.
    """

    def __init__(self, app: App, *, seed: int = 0) -> None:
        if not isinstance(app, App):
            raise InvalidValue("app", app, "a tailrace.App")
        self._clock = ManualClock(round(START.timestamp() * 1000))
        self.hub = Hub.from_backend(MemoryBackend("the hub of the run"), clock=self._clock)
        """The hub, to prepare it or to look at it."""
        self._calls = HandlerCalls()
        self._stepping = False
        self._random = random.Random(seed)
        for topic in app.topics:
            create_topic(self.hub, topic)
        queues = {each.name for each in app.queues}
        for declared in app.subscriptions:
            # The topic of a subscription is created by somebody else in production.
            if declared.topic not in queues and declared.topic not in self.hub.topics():
                self.hub.create_topic(declared.topic)
        open_all(self.hub, app.chosen(), app.topics)
        gate = ProcessGate()
        self._subscriptions = {
            declared.name: SubscriptionRun(
                self.hub,
                declared,
                calls=self._calls,
                clock=self._clock,
                random=self._random,
                gate=gate,
            )
            for declared in app.chosen()
        }
        self._turns = deque(self._subscriptions.values())

    @property
    def now(self) -> datetime:
        """The virtual time. It passes only in `until_idle`, `advance` and `step`."""
        return utc_time(self._clock.now_ms())

    # What a test does.

    def push(self, topic: str, value: Any, *, key: Key = None, headers: Headers = None) -> Receipt:
        """Push a message to a topic. No handler is called before the next step.

        The partition of a message without a key is drawn from the seed of the run.
        """
        with _drawing_from(self._random):
            return self.hub.topic(topic).push(value, key=key, headers=headers)

    def until_idle(self, *, calls_max: int = CALLS_MAX) -> None:
        """Make every call that is due, and let time pass up to the next ones, until none is left.

        Raises `NotIdle` if that takes more than `calls_max` calls: a message is retried without
        end, for example.
        """
        self._steps(inf, calls_max)

    def advance(self, duration: timedelta | str, *, calls_max: int = CALLS_MAX) -> None:
        """Let this time pass, and make the calls that are due meanwhile, each at its time."""
        until = self._clock.monotonic() + parse_duration(duration, "duration").total_seconds()
        self._steps(until, calls_max)
        self._clock.advance_to(until)

    def step(self) -> HandledDelivery | None:
        """Make one call, the next one, and let time pass if it is not due yet.

        Returns None if there is none.
        """
        found = self._step(inf)
        return None if found is None else found[1]

    def endpoint(self, subscription: str) -> SimulatedEndpoint:
        """Return what the handler of a subscription calls, to let it fail."""
        return self._subscription(subscription).endpoint

    def restart_worker(self) -> None:
        """Stop the process of all handlers in an orderly way, and start it again, as a deployment
        does."""
        for each in self._turns:
            each.worker.stop()
            each.worker.start()

    def kill_worker(self) -> None:
        """Kill the process of all handlers, and start it again.

        Successes that are not stored are forgotten, and their messages redelivered. They are
        stored whenever time passes, when the run is idle, and when the test asks what waits.
        """
        for each in self._turns:
            each.worker.kill()
            each.worker.start()

    def redeliver(
        self,
        subscription: str,
        *,
        break_order: bool = False,
        attempts: int = 1,
        **which: Unpack[LetterConditions],
    ) -> MadeRequest:
        """Have dead letters redelivered, by key, id or error, or ``all=True``.

        That is done by the next steps. The conditions and the order are those of
        ``hub.subscription(…).dead_letters.redeliver``.
        """
        letters = self._letters(subscription)
        return letters.redeliver(
            break_order=break_order, attempts=attempts, reason=_REASON, **which
        )

    def discard(self, subscription: str, **which: Unpack[LetterConditions]) -> MadeRequest:
        """Have dead letters discarded, by key, id or error, or ``all=True``, by the next steps."""
        return self._letters(subscription).discard(reason=_REASON, **which)

    # What a test asks for.

    def deliveries(self, subscription: str) -> list[HandledDelivery]:
        """Return the calls of a subscription's handler so far, in order."""
        return list(self._subscription(subscription).deliveries)

    def retrying(self, subscription: str) -> list[HeldMessage]:
        """Return the messages that failed and wait for another attempt, and their followers."""
        return self._subscription(subscription).held(Queue.RQ)

    def dead_letters(self, subscription: str) -> list[HeldMessage]:
        """Return the dead letters of a subscription, and the messages that followed them."""
        return self._subscription(subscription).held(Queue.DLQ)

    def pending(self, subscription: str) -> int:
        """Return the number of messages that are to be delivered, now or after a delay."""
        return self._subscription(subscription).count_pending()

    # Its end.

    def close(self) -> None:
        """Close the hub and the event loop of the handlers. Closing again does nothing."""
        self._calls.close()
        self.hub.close()

    def _letters(self, subscription: str) -> DeadLetters:
        """Return the dead letters of a subscription, for a request that is later than others:
        requests are carried out in the order of their times."""
        self._clock.advance(_REQUEST_S)
        return self.hub.subscription(self._subscription(subscription).name).dead_letters

    def _subscription(self, name: str) -> SubscriptionRun:
        found = self._subscriptions.get(name)
        if found is None:
            valid = ", ".join(self._subscriptions)
            near = did_you_mean(name, self._subscriptions)
            raise InvalidValue("subscription", name, valid, near)
        return found

    def _steps(self, until: float, calls_max: int) -> None:
        check_count("calls_max", calls_max)
        made: list[tuple[str, HandledDelivery]] = []
        while (found := self._step(until)) is not None:
            made.append(found)
            if len(made) > calls_max:
                raise NotIdle(made) from self._subscription(found[0]).last_error

    def _step(self, until: float) -> tuple[str, HandledDelivery] | None:
        """Make the next call, if it is due by then. Returns it with its subscription."""
        with self._alone():
            while True:
                for each in list(self._turns):
                    self._turns.rotate(-1)  # the others have their turn first
                    handled = each.step()
                    if handled is not None:
                        if handled.outcome is DeliveryOutcome.WORKER_DIED:
                            self.kill_worker()
                        return each.name, handled
                saved = [each.worker.save() for each in self._turns]
                woken = [each.worker.pop_woken() for each in self._turns]
                if any(saved) or any(woken):
                    continue
                due_at = min(each.worker.due_at for each in self._turns)
                if due_at == inf or due_at > until:
                    return None
                assert due_at > self._clock.monotonic(), "what is due now was called"
                self._clock.advance_to(due_at)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a handler that makes steps."""
        if self._stepping:
            raise Error("a handler makes a step of its run", "make the steps in the test")
        self._stepping = True
        try:
            yield
        finally:
            self._stepping = False


@contextlib.contextmanager
def _drawing_from(source: random.Random) -> Iterator[None]:
    """Let the module `random` draw from a source."""
    before = random.getstate()
    random.setstate(source.getstate())
    try:
        yield
    finally:
        source.setstate(random.getstate())
        random.setstate(before)


def run(app: App, *, seed: int = 0) -> AppRun:
    """Return a run of an app, to be closed or used in a `with` statement.

    Creates the topics, subscriptions and queues of the app in a hub in memory. A topic that the app
    does not declare, because somebody else creates it, has 4 partitions and takes values of any
    type. A handler of batches is called with lists of one message, and one with effects writes to
    its real database. Raises what `App.start` raises. `seed` is that of the jitter of retry delays.
    """
    return AppRun(app, seed=seed)
