"""What a test learns of a run: each call of a handler, and each message that waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any


class DeliveryOutcome(Enum):
    """How a call of a handler ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Another attempt follows, or after the last one the message is a dead letter."""
    REJECTED = "rejected"
    """The message is a dead letter at once."""
    WORKER_DIED = "worker died"
    """Nothing was stored of the call."""


@dataclass(frozen=True, slots=True)
class HandledDelivery:
    """One call of a handler, in the order of the run.

    `id` is the position of the message, as in the receipt of its push. `value` is None if it cannot
    be decoded. `at` is virtual time. `error` is empty after a success. `simulated` is True if a
    fault of the test struck and the handler was not called.
    """

    id: str
    key: str | None
    value: Any
    headers: Mapping[str, bytes]
    attempt: int
    at: datetime
    outcome: DeliveryOutcome
    error: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that waits in the retry queue, or a dead letter.

    `attempts` is the number of those that failed; it is 0 for a follower, which waits for an
    earlier message of its key. `due` is when it is retried next, None for followers and dead
    letters.
    """

    id: str
    key: str | None
    value: Any
    headers: Mapping[str, bytes]
    attempts: int
    error: str
    due: datetime | None
