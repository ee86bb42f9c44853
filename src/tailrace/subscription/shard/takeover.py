"""What a new owner of a shard starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.intake import HandedOut
from tailrace.subscription.shard.lag import LaggingKeys
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.topic.ledger import Progress


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a new owner read, after the fence of its grant was raised.

    `rq` and `dlq` list their partitions, the oldest storage topic first. `dlq` is empty if dead
    letters hold nothing back. `ended` are the processes, of those in `attempts`, that ended.
    """

    streams: ShardStreams
    ledgers: Mapping[Partition, Progress]
    rq: Sequence[LaggingKeys]
    dlq: Sequence[LaggingKeys]
    handed_out: Mapping[Partition, HandedOut]
    attempts: Mapping[Origin, Attempts]
    ended: frozenset[str] = frozenset()
