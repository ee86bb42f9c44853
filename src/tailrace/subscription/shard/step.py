"""What a shard asks its driver to do."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tailrace.message import Partition


class StepKind(Enum):
    """What a shard does next."""

    PAUSE = "pause the subscription: its breaker has tripped"
    LOAD = "read everything that is stored for it"
    READ = "read ahead in MQ"
    READ_AGAIN = "read the record of a message whose turn has come"
    READ_ATTEMPTS = "read the stored attempts of a dead letter that is redelivered, by its origin"
    REMOVE_REQUEST = "remove the store entry of the first of its requests that have ended"
    CALL = "call a handler"
    WAIT = "wait for an event"


class ShardStep(NamedTuple):
    """A step, and for a read where it starts; for one of attempts, the origin."""

    kind: StepKind
    partition: Partition | None = None
    offset: int = 0
    reset: int = 0
