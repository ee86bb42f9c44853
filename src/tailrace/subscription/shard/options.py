"""How a shard delivers, and the bounds of its memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tailrace.delivery.breaker import Breaker
from tailrace.delivery.filter.batch_filter import BatchFilter
from tailrace.delivery.retry import Retry
from tailrace.delivery.throttle import Throttle
from tailrace.subscription.shard.attempts import Attempts
from tailrace.subscription.shard.queues import OnDeadLetter

HELD_MAX: Final = 1_000_000
"""The most messages of MQ that a shard holds back."""
MOVES_MAX: Final = 1_000
"""The most messages that wait to be moved to RQ or DLQ before no more are called or read."""
APPEND_BYTES_MAX: Final = 8 << 20
"""The most bytes that wait to be appended, there and to the topics that handlers push to."""
PAYLOAD_BYTES_MAX: Final = 4 << 20
"""The most that a shard keeps of the records that it has read, unless the last read was larger."""
PERMITS_AHEAD: Final = 4
"""The number of calls that are prepared and permitted ahead, as a multiple of the concurrency."""


class Acking(Enum):
    """When a message is acknowledged."""

    AFTER_CALL = "after the call"
    BEFORE_CALL = "before the call"
    """It is called at most once, and not at all if its worker is killed in between."""


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """The options of a shard. `concurrency` is the number of messages in flight in its worker.
    Messages of MQ that do not match `filter` are acknowledged when they are read."""

    retry: Retry
    policy: OnDeadLetter = OnDeadLetter.BLOCK
    concurrency: int = 16
    held_max: int = HELD_MAX
    moves_max: int = MOVES_MAX
    append_bytes_max: int = APPEND_BYTES_MAX
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    filter: BatchFilter | None = None
    acking: Acking = Acking.AFTER_CALL
    slice_max: int = 0
    """The most messages in a slice; 0 if there are no slices."""
    prepared: int | None = None
    """The number of calls that are prepared ahead; None for a multiple of the concurrency."""
    calls_max: int | None = None
    """The most calls of the shard at a time; None if only the worker limits them."""
    breaker: Breaker | None = None
    """The dead letters of the shard that pause its subscription; None if none do."""
    throttle: Throttle | None = None
    """The messages of the shard that may fail before fewer are called; None if all may."""

    def used_up(self, attempts: Attempts) -> bool:
        """True if a message has no attempt left."""
        most = self.retry.attempts
        return most is not None and attempts.count >= most

    @property
    def calls_ahead(self) -> int:
        """The number of calls that are prepared ahead."""
        at_once = self.concurrency
        if self.calls_max is not None:
            at_once = min(at_once, self.calls_max * (self.prepared or 1))
        if self.acking is Acking.BEFORE_CALL:  # a kill loses what is prepared
            return at_once
        return max(at_once, self.prepared or PERMITS_AHEAD * at_once)
