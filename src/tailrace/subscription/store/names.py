"""The names under which a subscription is stored.

    subscription/NAME                        store: its definition
    tailrace.retry-queue.NAME                topic: RQ
    tailrace.dead-letter-queue.NAME          topic: DLQ
    ledger/subscription:NAME                 table: the progress in each partition of MQ, RQ and DLQ
    group-reach/subscription:NAME            table: `handed_out` of each partition of MQ
    subscription-attempts/NAME               table: failed attempts
    group-grant/subscription:NAME/0.3        store: the worker that has shard 3 of generation 0

The workers of a subscription form a group of the name ``subscription:NAME``. No user can give a
group such a name, and it has no entry ``group/…``, so it is not listed among groups.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.backend.contract import Fence
from tailrace.errors import InvalidValue
from tailrace.group.store.definition import unit_fence
from tailrace.reserved_names import DEAD_LETTER_QUEUE_PREFIX, RETRY_QUEUE_PREFIX

SUBSCRIPTIONS: Final = "subscription/"
"""Store entries under this prefix are the definitions of subscriptions."""

_GROUP: Final = "subscription:"


class ShardName(NamedTuple):
    """A shard of a generation, written ``0.3``: the unit that a worker is granted."""

    generation: int
    shard: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.shard}"

    @classmethod
    def parse(cls, text: str) -> ShardName:
        """Parse ``0.3``; `InvalidValue` for other text."""
        generation, dot, shard = text.partition(".")
        if not (dot and generation.isdecimal() and shard.isdecimal()):
            raise InvalidValue("shard", text, "GENERATION.SHARD, for example 0.3")
        return cls(int(generation), int(shard))


def retry_queue(subscription: str) -> str:
    """Return the topic that is a subscription's RQ."""
    return RETRY_QUEUE_PREFIX + subscription


def dead_letter_queue(subscription: str) -> str:
    """Return the topic that is a subscription's DLQ."""
    return DEAD_LETTER_QUEUE_PREFIX + subscription


def worker_group(subscription: str) -> str:
    """Return the group of a subscription's workers, which is also its name as a consumer."""
    return _GROUP + subscription


def subscription_of(group: str) -> str | None:
    """Return the subscription whose workers form a group; None if it is another group."""
    return group.removeprefix(_GROUP) if group.startswith(_GROUP) else None


def shard_fence(subscription: str, shard: str, epoch: int) -> Fence:
    """Return the fence with which the owner of a shard writes."""
    return Fence(unit_fence(worker_group(subscription), shard), epoch)
