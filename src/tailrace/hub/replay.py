"""A replay of a queue in the Python API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from tailrace.backend.pickling import Unpicklable
from tailrace.closing import Closing
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue, UnknownSubscription
from tailrace.hub.dead_letters import DeadLetters
from tailrace.hub.subscription import DeliveryHandler, Subscription
from tailrace.hub.topic import Topic
from tailrace.message import Message
from tailrace.queue.draining import LOOK_S
from tailrace.queue.replay.copying import copier
from tailrace.queue.replay.job import ReplayJob, ReplayState, read_replay
from tailrace.queue.replay.lifecycle import cancel_replay, look_at, peek_at
from tailrace.queue.replay.progress import ReplayProgress
from tailrace.subscription.store.names import replay_subscription
from tailrace.subscription.worker.effects import Effects
from tailrace.topic.record_builder import Time, milliseconds

if TYPE_CHECKING:
    from tailrace.subscription.worker.worker import Worker

COPIES: Final = 100
"""The number of messages that one call of the built-in handler pushes again."""

_WORKING_S: Final = 0.2
"""How often to look if a replay is done while a worker of this process works on it."""


class ReplayOptions(TypedDict, total=False):
    """The options of the handler of a replay: those of `Subscription.start`. A replay that pushes
    its messages again has `concurrency` and `drain_timeout` alone."""

    concurrency: int
    type: Any
    timeout: timedelta | str
    drain_timeout: timedelta | str
    filter: Callable[[Message[Any]], bool] | None
    guarantee: str
    batch: bool
    batch_size: int | None
    effects: Effects | None


class Replay(Closing, Unpicklable):
    """A replay of a queue: a stored job, on which any number of processes work at a time.

    It goes on, from where it was, whenever a process works on it, and the live queue goes on
    beside it. Leaving the `with` block, or `close`, ends the work of this process; only `cancel`
    ends the replay.
    """

    def __init__(
        self, topic: Topic[Any], id: str, open_subscription: Callable[[str], Subscription]
    ) -> None:
        self.id = id
        """Its name. Deliveries have it as `Delivery.replay`."""
        self.queue = topic.name
        """The name of the queue."""
        self._backend = topic.view.backend
        self._clock = topic.clock
        self._subscription = replay_subscription(topic.name, id)
        self._open_subscription = open_subscription
        self._worker: Worker | None = None
        read_replay(self._backend, self.queue, id)

    def __repr__(self) -> str:
        return f"<Replay {self.id} of {self.queue}>"

    @property
    def job(self) -> ReplayJob:
        """Its range, and who asked for it, as it is stored now."""
        return read_replay(self._backend, self.queue, self.id).job

    @property
    def dead_letters(self) -> DeadLetters:
        """Its own dead letters: to list, show, redeliver and discard."""
        return DeadLetters(self._backend, self._subscription, self._clock)

    def progress(self) -> ReplayProgress:
        """Count its messages. If none is left, the replay is done, and this records it."""
        seen = peek_at(self._backend, self.queue, self.id)
        if seen.state is not ReplayState.RUNNING and not seen.dead:
            self.close()
        return look_at(self._backend, self.queue, self.id, self._clock.now_ms())

    def start(
        self, handler: DeliveryHandler | None = None, **options: Unpack[ReplayOptions]
    ) -> Self:
        """Start to work on the replay in this process, and return at once.

        A replay that was created with a handler needs one, and one without pushes its messages
        again to the queue. Does nothing if the replay has ended and has no dead letters.
        """
        needed = self.job.has_handler
        if needed is (handler is None):
            valid = "a function of a Delivery" if needed else "None"
            problem = f"replay {self.id!r} was created {'with' if needed else 'without'} a handler"
            raise InvalidValue("handler", handler, valid, problem=problem)
        self.close()
        try:
            subscription = self._open_subscription(self._subscription)
            if handler is None:
                self._worker = self._start_copying(subscription, options)
            else:
                self._worker = subscription.start(handler, **options)
        except UnknownSubscription:
            look_at(self._backend, self.queue, self.id, self._clock.now_ms())
        return self

    def run(
        self, handler: DeliveryHandler | None = None, **options: Unpack[ReplayOptions]
    ) -> ReplayProgress:
        """Work on the replay in this process until it has ended, and return its progress."""
        with self.start(handler, **options):
            self.wait()
        return self.progress()

    def wait(self, timeout: timedelta | str | None = None) -> bool:
        """Wait until the replay has ended, by the work of any process. False after the timeout, or
        when `stop` was called. Raises the error that ended the work of this process."""
        limit_s = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        deadline = None if limit_s is None else self._clock.monotonic() + limit_s
        follower = self._backend.follower()
        try:
            while True:
                follower.arm()
                if self.progress().state is not ReplayState.RUNNING:
                    return True
                left = LOOK_S if deadline is None else deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                worker = self._worker
                if worker is None:
                    follower.wait(min(left, LOOK_S))
                elif self._stopped(worker, min(left, _WORKING_S)):
                    return self.progress().state is not ReplayState.RUNNING
        finally:
            follower.close()

    def stop(self) -> None:
        """Have `wait` and `run` return. Also in a signal handler."""
        worker = self._worker
        if worker is not None:
            worker.stop()

    def close(self) -> bool:
        """End the work of this process: wait for its calls, and store their outcomes.

        False if a call did not end in time: its message will be redelivered. The replay stays, and
        `Queue.resume_replay` continues it.
        """
        worker, self._worker = self._worker, None
        return worker is None or worker.close()

    def cancel(self) -> bool:
        """End the replay for all processes. What it has done stays done, and its dead letters are
        dropped. False if it had ended before."""
        self.stop()
        cancelled = cancel_replay(self._backend, self.queue, self.id, self._clock.now_ms())
        self.close()
        return cancelled

    def _start_copying(self, subscription: Subscription, options: ReplayOptions) -> Worker:
        allowed = {"concurrency", "drain_timeout"}
        for name in options.keys() - allowed:
            raise InvalidValue("option", name, f"{', '.join(sorted(allowed))} without a handler")
        return subscription.start(
            copier(self.queue, self.id, self._clock.now_ms),
            concurrency=options.get("concurrency", 2),
            drain_timeout=options.get("drain_timeout", "30s"),
            guarantee="exactly-once",
            batch=True,
            batch_size=COPIES,
        )

    def _stopped(self, worker: Worker, timeout_s: float) -> bool:
        """Wait a moment. True if the worker was stopped."""
        try:
            return worker.wait(timeout_s)
        except UnknownSubscription:  # another process has recorded the end of the replay
            self.close()
            return False


def range_ms(start: Time, end: Time, now_ms: int) -> tuple[int, int]:
    """Return the range of a replay in milliseconds; `InvalidValue` for other than aware times, and
    if it ends before it starts."""
    first, after = _time("start", start), now_ms if end is None else _time("end", end)
    if first > after:
        shown = "now" if end is None else end
        raise InvalidValue("start", start, f"a time that is not after the end, {shown}")
    return first, after


def _time(name: str, time: Time) -> int:
    try:
        return milliseconds(time)
    except InvalidValue as error:
        raise InvalidValue(name, time, error.valid) from None
