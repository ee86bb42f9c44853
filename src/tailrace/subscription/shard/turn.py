"""A message whose turn has come, on its way to a call."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.delivery.key_lanes import LaneName
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import Queue

NO_ATTEMPTS = Attempts()


@dataclass(slots=True, eq=False)
class Turn:
    """The first message of a lane of a queue.

    `record`, `origin` and `attempts` are known once the record was read.
    """

    queue: Queue
    lane: LaneName
    id: int
    record: RecordRow | None = None
    origin: Origin | None = None
    attempts: Attempts = NO_ATTEMPTS
    alone: bool = False
    """True if nothing else may be in flight in the worker while it is called."""

    @property
    def known_record(self) -> RecordRow:
        """The record, which was read."""
        assert self.record is not None, "a record is read before its message is called or moved"
        return self.record

    @property
    def known_origin(self) -> Origin:
        """The origin, which the record has."""
        assert self.origin is not None, "a record is read before its message is called"
        return self.origin

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.attempts.count + 1
