"""Running a worker of a subscription, with one handler or with its endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from tailrace.app.attended import AppObserver, run_until_signal
from tailrace.app.running_app import RunningApp
from tailrace.group.consumer.handlers import Handler
from tailrace.hub.hub import Hub
from tailrace.subscription.worker.options import StartOptions
from tailrace.subscription.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The calls of a worker that was stopped, by outcome.

    `drained` is False if some calls did not end in time, which `in_flight` counts, or if their
    outcomes could not be stored.
    """

    subscription: str
    worker: str
    drained: bool
    in_flight: int
    succeeded: int
    failed: int
    rejected: int


def run_worker(
    hub: Hub,
    name: str,
    handler: Handler[Any] | None,
    started: Callable[[Worker], None],
    **options: Unpack[StartOptions],
) -> WorkerReport:
    """Run a worker until Ctrl-C or SIGTERM; see `run_until_signal`. `started` is told of it.

    Raise what `Subscription.start` raises, `UnknownSubscription`, and the error that ended it.
    """
    subscription = hub.subscription(name)
    workers: list[Worker] = []

    def start() -> RunningApp:
        worker = subscription.start(handler, **options)
        workers.append(worker)
        started(worker)
        return RunningApp({name: worker}, {name} if subscription.definition.queue else ())

    drained = run_until_signal(start, AppObserver())
    (worker,) = workers
    stats = worker.stats()
    return WorkerReport(
        name,
        worker.id,
        drained,
        0 if drained else stats.in_flight,
        stats.succeeded,
        stats.failed,
        stats.rejected,
    )
