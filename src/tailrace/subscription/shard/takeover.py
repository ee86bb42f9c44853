"""What a new owner of a shard starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.lag import LaggingKeys
from tailrace.subscription.shard.permits import Permits
from tailrace.subscription.shard.requests.request import LetterRequest
from tailrace.subscription.shard.requests.state import RequestState
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.topic.ledger import Progress


@dataclass(frozen=True, slots=True)
class Takeover:
    """What a new owner read, after the fence of its grant was raised.

    `rq` and `dlq` list their partitions, the oldest storage topic first. `dlq` is empty if dead
    letters hold nothing back. `ended` are the processes, of those in `permits` and `attempts`, that
    ended.
    `requests` are pending requests on dead letters in the order in which they were made, and
    `request_states` how far requests are, by id.
    """

    streams: ShardStreams
    ledgers: Mapping[Partition, Progress]
    rq: Sequence[LaggingKeys]
    dlq: Sequence[LaggingKeys]
    permits: Mapping[Partition, Permits]
    attempts: Mapping[Origin, Attempts]
    ended: frozenset[str] = frozenset()
    requests: Sequence[LetterRequest] = ()
    request_states: Mapping[str, RequestState] = field(default_factory=dict)
    counts: ShardCounts = field(default_factory=ShardCounts)
