"""The metrics that are read of the hub: of its disk, and of the subscriptions and groups that this
process works for.

They are read when somebody asks for them, but not more often than every few seconds, and so that
reading takes at most a twentieth of the time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from tailrace import telemetry
from tailrace.backend.capabilities import InDirectory
from tailrace.backend.contract import Backend
from tailrace.clock import Clock, SystemClock, utc_time
from tailrace.errors import Error
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.describe import lag_of, show_group
from tailrace.hub.hub import Hub
from tailrace.operations.subscription.checks import HELD_BACK_MAX
from tailrace.reporting.sample import Sample
from tailrace.subscription.store.backlog import count_backlog
from tailrace.subscription.store.definition import find_subscription
from tailrace.subscription.store.describe import last_held_back
from tailrace.subscription.store.generations.opening import as_opened
from tailrace.subscription.store.lifecycle import read_again_if_deleted
from tailrace.subscription.store.owners import shard_owners
from tailrace.subscription.store.pause import find_pause

EVERY_S: Final = 5.0
"""The least time between two readings."""

SHARE_MAX: Final = 20
"""After a reading, none begins for this number of times as long as it has taken."""

_log: Final = logging.getLogger("tailrace.metrics")


class HubReadings:
    """What is read of a hub. Any thread may use it; one of them reads."""

    def __init__(self, hub: Hub, clock: Clock | None = None) -> None:
        self._backend = hub.backend
        self._clock = clock or SystemClock()
        self._mutex = threading.Lock()
        self._samples: list[Sample] = []
        self._failures = 0
        self._read_at = self._due = float("-inf")

    def samples(self, own: Iterable[Sample]) -> list[Sample]:
        """Return the samples of the last reading, which may be now. `own` are those of the process:
        they name its subscriptions and groups."""
        with self._mutex:
            now = self._clock.monotonic()
            if now >= self._due:
                self._samples = list(self._read(own))
                self._read_at = self._clock.monotonic()
                self._due = self._read_at + max(EVERY_S, SHARE_MAX * (self._read_at - now))
                now = self._read_at
            return [
                *self._samples,
                Sample(telemetry.READING_AGE, (), now - self._read_at),
                Sample(telemetry.READING_FAILURES, (), self._failures),
            ]

    def _read(self, own: Iterable[Sample]) -> Iterator[Sample]:
        backend, now_ms = self._backend, self._clock.now_ms()
        names: dict[str, set[str]] = {}
        for sample in own:
            if sample.metric in (telemetry.WORKER_SHARDS, telemetry.CONSUMER_PARTITIONS):
                names.setdefault(sample.metric.name, set()).add(*sample.labels)
        readings = [_read_disk(backend)]
        for name in sorted(names.get(telemetry.WORKER_SHARDS.name, ())):
            readings.append(_read_subscription(backend, name, now_ms))
        for name in sorted(names.get(telemetry.CONSUMER_PARTITIONS.name, ())):
            readings.append(_read_group(backend, name, now_ms))
        for reading in readings:
            try:
                yield from list(reading)
            except Error as error:
                self._failures += 1
                _log.warning("metrics could not be read of the hub: %s", error)


def _read_disk(backend: Backend) -> Iterator[Sample]:
    if isinstance(backend, InDirectory):
        use = backend.directory_use()
        yield Sample(telemetry.DATABASE_BYTES, (), use.database_bytes)
        yield Sample(telemetry.WAL_BYTES, (), use.wal_bytes)
        yield Sample(telemetry.DISK_FREE_BYTES, (), use.disk_free_bytes)
        yield Sample(telemetry.DISK_USED_RATIO, (), use.disk_percent / 100)


def _read_subscription(backend: Backend, name: str, now_ms: int) -> Iterator[Sample]:
    yield from read_again_if_deleted(
        backend, name, lambda: list(_samples_of(backend, name, now_ms))
    )


def _samples_of(backend: Backend, name: str, now_ms: int) -> Iterator[Sample]:
    stored = find_subscription(backend, name)
    if stored is None:
        return
    definition = stored.definition
    owners = shard_owners(backend, name, definition)
    yield Sample(telemetry.SUBSCRIPTION_PAUSED, (name,), int(find_pause(backend, name) is not None))
    yield Sample(telemetry.SUBSCRIPTION_SHARDS, (name,), definition.shards)
    yield Sample(telemetry.SUBSCRIPTION_UNOWNED, (name,), definition.shards - len(owners))
    held_back = last_held_back(backend, name)
    throttled = held_back is not None and utc_time(now_ms) - held_back < HELD_BACK_MAX
    yield Sample(telemetry.SUBSCRIPTION_THROTTLED, (name,), int(throttled))
    backlog = count_backlog(backend, as_opened(stored))
    for queue, messages in (("mq", backlog.mq), ("rq", backlog.rq), ("dlq", backlog.dlq)):
        yield Sample(telemetry.SUBSCRIPTION_BACKLOG, (name, queue), messages)
    yield Sample(telemetry.SUBSCRIPTION_OLDEST, (name,), _age_s(backlog.oldest, now_ms))


def _read_group(backend: Backend, name: str, now_ms: int) -> Iterator[Sample]:
    group = show_group(backend, name)
    oldest = [each.oldest for each in lag_of(backend, group) if each.oldest is not None]
    states = [each.state for each in group.partitions]
    yield Sample(telemetry.GROUP_LAG, (name,), group.summary.lag)
    yield Sample(telemetry.GROUP_LAG_SECONDS, (name,), _age_s(min(oldest, default=None), now_ms))
    yield Sample(telemetry.GROUP_CONSUMERS, (name,), group.summary.consumers)
    yield Sample(telemetry.GROUP_BLOCKED_KEYS, (name,), group.summary.failed)
    for state in UnitState:
        yield Sample(telemetry.GROUP_PARTITIONS, (name, state.value), states.count(state))


def _age_s(oldest: datetime | None, now_ms: int) -> float:
    return 0.0 if oldest is None else max(0.0, now_ms / 1000 - oldest.timestamp())
