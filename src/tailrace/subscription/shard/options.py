"""How a shard delivers, and the bounds of its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.delivery.retry import Retry
from tailrace.subscription.shard.queues import OnDeadLetter

HELD_MAX: Final = 1_000_000
"""The most messages of MQ that a shard holds back."""
MOVES_MAX: Final = 1_000
"""The most messages that wait to be moved to RQ or DLQ before no more are called or read."""
MOVE_BYTES_MAX: Final = 8 << 20
"""The most bytes of such messages."""
PAYLOAD_BYTES_MAX: Final = 16 << 20
"""The most that a shard keeps of the records that it has read."""
BOUND_STEPS: Final = 4
"""How far ahead `handed_out` is stored, as a multiple of the concurrency."""


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """The options of a shard. `concurrency` is that of its worker."""

    retry: Retry
    policy: OnDeadLetter = OnDeadLetter.BLOCK
    concurrency: int = 16
    held_max: int = HELD_MAX
    moves_max: int = MOVES_MAX
    move_bytes_max: int = MOVE_BYTES_MAX
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
