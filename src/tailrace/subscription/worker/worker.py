"""A worker of a subscription, as users hold it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from tailrace.backend.contract import Backend
from tailrace.backend.pickling import Unpicklable
from tailrace.clock import SystemClock
from tailrace.delivery.outcome import OutcomeKind
from tailrace.errors import InvalidValue
from tailrace.group.consumer.handlers import awaits
from tailrace.group.protocol.times import Times
from tailrace.group.runtime.runtime import Runtime, join
from tailrace.settings import HubSettings
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.shard_units import ShardUnits
from tailrace.subscription.worker.calls import CallRunner, CallSource, Handler
from tailrace.subscription.worker.effects_calls import effects_call, plain_call
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.subscription.worker.outputs import FindTopic, OutputTopics
from tailrace.subscription.worker.runners.endpoint_calls import CalledHandler, endpoint_calls
from tailrace.subscription.worker.runners.loop_calls import LoopCalls
from tailrace.subscription.worker.runners.thread_calls import ThreadCalls
from tailrace.subscription.worker.session import WorkerSession
from tailrace.subscription.worker.shard_io import Decode


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """The shards of a worker, and the number of its calls by outcome since it was started.

    `filtered` messages were acknowledged without a call, since its present shards were granted.
    """

    shards: tuple[str, ...]
    in_flight: int
    succeeded: int
    failed: int
    rejected: int
    filtered: int


class Worker(Unpicklable):
    """A worker of a subscription in this process. It works until it is stopped.

    Leave its `with` block, or call `close`, to end it in an orderly way.
    """

    def __init__(self, session: WorkerSession) -> None:
        self._session = session
        self._drained: bool | None = None
        # Reentrant: a signal handler may close the worker while the main thread closes it.
        self._closing = threading.RLock()

    @property
    def id(self) -> str:
        """The name of the worker, as ``tailrace subscription show`` prints it."""
        return self._session.id

    @property
    def subscription(self) -> str:
        """The name of its subscription."""
        return self._session.subscription

    def stats(self) -> WorkerStats:
        """Return the shards and the calls of the worker now."""
        session = self._session
        with session.changed:
            machine, counts = session.machine, session.calls.counts
            return WorkerStats(
                tuple(sorted(machine.shards)),
                machine.in_flight,
                counts[OutcomeKind.SUCCESS],
                counts[OutcomeKind.RETRY],
                counts[OutcomeKind.REJECT],
                sum(each.filtered for each in machine.shards.values()),
            )

    def stop(self) -> None:
        """Call no more messages, and have `wait` return. Any thread may call it, also in a signal
        handler."""
        self._session.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker is stopped. False after the timeout.

        Raises the error that ended it, for example `HubClosed`, or `UnknownSubscription` if its
        subscription was deleted.
        """
        return self._session.wait(timeout_s)

    def close(self) -> bool:
        """End the worker: wait for its calls, up to `drain_timeout`, and store their outcomes.

        False if a call did not end in time, or its outcome could not be stored: its message will
        be redelivered. Closing again does nothing; while another thread closes the worker, it waits
        for that.
        """
        with self._closing:
            if self._drained is None:
                self._drained = False
                self._drained = self._session.leave()
            return self._drained

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start_worker(
    backend: Backend,
    subscription: str,
    handler: Handler | None,
    options: WorkerOptions,
    *,
    decode: Decode,
    settings: HubSettings,
    find_topic: FindTopic,
) -> Worker:
    """Start a worker of a subscription, which calls the handler with its messages. Without a
    handler it delivers them to the endpoint of the subscription."""
    stored = read_subscription(backend, subscription)
    definition = stored.definition
    clock = SystemClock()  # the clock of the runtime, whose leases are compared with it
    if handler is None:
        called = endpoint_calls(stored, options, clock)
    elif callable(handler):
        called = CalledHandler(_calls(subscription, handler, options, clock.monotonic))
    else:
        raise InvalidValue("handler", handler, "a function with one argument, a delivery")
    session = WorkerSession(
        backend,
        subscription,
        options.shard_options(definition),
        options,
        identity=definition.identity,
        clock=clock,
        decode=decode,
        calls=called.runner,
        outputs=OutputTopics(backend, find_topic) if options.transactional else None,
        defined=called.defined,
    )

    def join_group(member: WorkerSession) -> Runtime:
        interval_s = settings.progress_interval / timedelta(seconds=1)
        times = Times.of(settings.lease)
        return join(backend, member, times, interval_s, ShardUnits(backend))

    session.start(join_group)
    return Worker(session)


def _calls(
    name: str, handler: Handler, options: WorkerOptions, monotonic: Callable[[], float]
) -> Callable[[CallSource], CallRunner]:
    kind = LoopCalls if awaits(handler) else ThreadCalls
    return partial(
        kind,
        name,
        plain_call(handler) if options.effects is None else effects_call(handler),
        concurrency=options.concurrency,
        timeout_s=options.timeout.total_seconds(),
        monotonic=monotonic,
    )
