"""What a consumer reports of its partitions and its deliveries."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tailrace import telemetry
from tailrace.group.session.scheduler import Scheduler
from tailrace.group.session.session_unit import SessionUnit
from tailrace.reporting.sample import Sample


class SessionReporter:
    """A `Reporter` of one consumer of a group. `lock` guards the scheduler. `unready` returns why
    the consumer gets no deliveries."""

    def __init__(
        self,
        group: str,
        scheduler: Scheduler[SessionUnit],
        *,
        lock: threading.Condition,
        unready: Callable[[], str | None],
    ) -> None:
        self.granted = 0
        """The number of partitions that were granted so far."""
        self.revoked = 0
        """The number of partitions that were revoked so far."""
        self.unready = unready
        self._labels = (group,)
        self._scheduler = scheduler
        self._lock = lock

    def report(self) -> list[Sample]:
        """Return the samples of now."""
        with self._lock:
            counts, units = self._scheduler.counts, len(self._scheduler.units)
            cursors = self._scheduler.cursors.values()
            in_flight = sum(cursor.in_flight for cursor in cursors)
            held_back = sum(cursor.held_back for cursor in cursors)
        return [
            Sample(metric, self._labels, value)
            for metric, value in (
                (telemetry.DELIVERED, counts.delivered),
                (telemetry.REDELIVERED, counts.redelivered),
                (telemetry.ACKNOWLEDGED, counts.acknowledged),
                (telemetry.NACKED, counts.nacked),
                (telemetry.CONSUMER_IN_FLIGHT, in_flight),
                (telemetry.CONSUMER_HELD_BACK, held_back),
                (telemetry.CONSUMER_PARTITIONS, units),
                (telemetry.PARTITIONS_GRANTED, self.granted),
                (telemetry.PARTITIONS_REVOKED, self.revoked),
            )
        ]
