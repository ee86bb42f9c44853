"""What a worker reports of its shards, its calls and its commits; the log of its dead letters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from tailrace import telemetry
from tailrace.delivery.outcome import OutcomeKind
from tailrace.reporting.histogram import Histogram
from tailrace.reporting.sample import Sample
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.worker_calls import WorkerCalls

_log: Final = logging.getLogger("tailrace.subscription")

_OUTCOMES: Final = {
    OutcomeKind.SUCCESS: "succeeded",
    OutcomeKind.RETRY: "failed",
    OutcomeKind.REJECT: "rejected",
}


class WorkerReporter:
    """A `Reporter` of one worker. `lock` guards the machine, the counts of the calls, and `granted`
    and `lost`. `unready` returns why the worker does not work."""

    def __init__(
        self,
        subscription: str,
        machine: WorkerMachine[Any],
        calls: WorkerCalls,
        *,
        lock: threading.Condition,
        unready: Callable[[], str | None],
    ) -> None:
        self.granted = 0
        """The number of shards that were granted so far."""
        self.lost = 0
        """The number of shards that were given up so far."""
        self._labels = (subscription,)
        self._machine = machine
        self._calls = calls
        self._lock = lock
        self.unready = unready
        self.commit_seconds = Histogram(telemetry.WORKER_COMMIT_SECONDS)
        """How long the commits have taken."""
        self._mutex = threading.Lock()
        self._letters = self._failures = 0

    def stored(self, commit: ShardCommit) -> None:
        """Log and count the messages that a commit made dead letters, without those that follow
        them."""
        letters = [m for m in commit.moves if m.target is Queue.DLQ and m.attempts is not None]
        for move in letters:
            told = *self._labels, move.origin, move.error, move.origin
            _log.error("%s: %s is a dead letter now: %s; tailrace explain %s", *told)
        with self._mutex:
            self._letters += len(letters)

    def not_committed(self) -> None:
        """Record that a commit stored nothing."""
        with self._mutex:
            self._failures += 1

    def report(self) -> list[Sample]:
        """Return the samples of now."""
        labels = self._labels
        with self._lock:
            found = list(self._of_machine())
        return [
            *found,
            Sample(telemetry.WORKER_CALL_SECONDS, labels, self._calls.seconds.value),
            Sample(telemetry.WORKER_DEAD_LETTERS, labels, self._letters),
            Sample(telemetry.WORKER_COMMIT_SECONDS, labels, self.commit_seconds.value),
            Sample(telemetry.WORKER_COMMIT_FAILURES, labels, self._failures),
        ]

    def _of_machine(self) -> Iterator[Sample]:
        machine, counts, labels = self._machine, self._calls.counts, self._labels
        filtered = machine.filtered_before + sum(each.filtered for each in machine.shards.values())
        by_outcome = {name: counts[kind] for kind, name in _OUTCOMES.items()} | {
            "filtered": filtered
        }
        for outcome, count in by_outcome.items():
            yield Sample(telemetry.WORKER_MESSAGES, (*labels, outcome), count)
        yield Sample(telemetry.WORKER_IN_FLIGHT, labels, machine.in_flight)
        yield Sample(telemetry.WORKER_CONCURRENCY, labels, machine.options.concurrency)
        yield Sample(telemetry.WORKER_LATE_CALLS, labels, machine.late)
        yield Sample(telemetry.WORKER_SHARDS, labels, len(machine.shards))
        yield Sample(telemetry.WORKER_SHARDS_GRANTED, labels, self.granted)
        yield Sample(telemetry.WORKER_SHARDS_LOST, labels, self.lost)
