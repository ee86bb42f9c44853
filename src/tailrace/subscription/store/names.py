"""The names under which a subscription is stored.

    subscription/NAME                        store: its definition
    subscription-paused/NAME                 store: since when and why it is paused
    subscription-reset/NAME                  store: its last offset reset
    subscription-request/NAME/ID             store: what an operator asked the owners of shards for
    subscription-worker/NAME/ID              store: the session that has the id of a worker
    fence/subscription/NAME                  store: the fence of its creation, resets and deletion
    tailrace.retry-queue.NAME                topic: RQ
    tailrace.dead-letter-queue.NAME          topic: DLQ
    ledger/subscription:NAME                 table: the progress in each partition of MQ, RQ, DLQ,
                                             and of feeders in older ones of RQ and DLQ
    subscription-permits/NAME                table: what may be called of each partition of MQ
    subscription-attempts/NAME               table: failed attempts
    subscription-traces/NAME                 table: the tracebacks of dead letters
    subscription-requests/NAME               table: how far the requests of operators are
    subscription-reset-numbers/NAME          table: the last reset of each partition of MQ
    subscription-counts/NAME                 table: how many messages of a shard had which end
    group-grant/subscription:NAME/0.3        store: the worker that has shard 3 of generation 0

The workers of a subscription form a group of the name ``subscription:NAME``. No user can give a
group such a name, and it has no entry ``group/…``, so it is not listed among groups.

The subscription that replays a queue has the name ``tailrace.replay.QUEUE.ID``. Users neither
create nor list such subscriptions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.backend.contract import Fence
from tailrace.errors import InvalidValue
from tailrace.group.store.definition import unit_fence
from tailrace.reserved_names import (
    DEAD_LETTER_QUEUE_PREFIX,
    REPLAY_PREFIX,
    RETRY_QUEUE_PREFIX,
    WORKER_GROUP_PREFIX,
)

SUBSCRIPTIONS: Final = "subscription/"
"""Store entries under this prefix are the definitions of subscriptions."""

PAUSED: Final = "subscription-paused/"
"""Store entries under this prefix are the pauses of subscriptions."""

WORKER_IDS: Final = "subscription-worker/"
"""Store entries under this prefix are the ids of workers, after the subscription and a slash."""

RESETS: Final = "subscription-reset/"
"""Store entries under this prefix are the last offset resets of subscriptions."""

REQUESTS: Final = "subscription-request/"
"""Store entries under this prefix are requests of operators, after the name and a slash."""


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


def requests_prefix(subscription: str) -> str:
    """Return the prefix of the store entries of a subscription's requests."""
    return f"{REQUESTS}{subscription}/"


def worker_group(subscription: str) -> str:
    """Return the group of a subscription's workers, which is also its name as a consumer."""
    return WORKER_GROUP_PREFIX + subscription


def subscription_of(group: str) -> str | None:
    """Return the subscription whose workers form a group; None if it is another group."""
    if not group.startswith(WORKER_GROUP_PREFIX):
        return None
    return group.removeprefix(WORKER_GROUP_PREFIX)


def replay_subscription(queue: str, replay: str) -> str:
    """Return the subscription that a replay of a queue is."""
    return f"{REPLAY_PREFIX}{queue}.{replay}"


def replay_of(subscription: str) -> str | None:
    """Return the id of the replay that a subscription is; None if it is none."""
    return subscription.rpartition(".")[2] if subscription.startswith(REPLAY_PREFIX) else None


def own_fence(subscription: str) -> str:
    """Return the name of the fence of a subscription's creation, resets and deletion."""
    return f"subscription/{subscription}"


def shard_fence(subscription: str, shard: str, epoch: int) -> Fence:
    """Return the fence with which the owner of a shard writes."""
    return Fence(unit_fence(worker_group(subscription), shard), epoch)
