"""How far a replay is, counted in records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_all
from tailrace.message import Partition
from tailrace.queue.replay.job import ReplayCounts, ReplayJob, ReplayState
from tailrace.subscription.shard.commit.counts import ShardCounts, counts_table, decode_counts
from tailrace.subscription.shard.replay_bounds import ReplayBounds
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.requests.entries import pending_requests
from tailrace.topic.ledger import Progress
from tailrace.topic.record_count import amount_left, amount_within


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Numbers of messages of a replay.

    `done` were handled, or pushed again to the queue. `left` were not read yet, and `retrying` wait
    in the replay's own RQ. `dead` are its dead letters, and `discarded` those that an operator
    dropped. Records of other times that are stored among the messages of the range count as `left`
    until they are read, so `total` falls while the replay runs. It is exact once that has ended.
    """

    state: ReplayState
    done: int = 0
    left: int = 0
    retrying: int = 0
    dead: int = 0
    discarded: int = 0

    @property
    def total(self) -> int:
        """The number of messages of the range, or more while the replay runs."""
        return self.done + self.left + self.retrying + self.dead + self.discarded

    @property
    def counts(self) -> ReplayCounts:
        """What stays known when the replay has ended."""
        return ReplayCounts(self.done, self.dead, self.discarded)


def ended_progress(job: ReplayJob) -> ReplayProgress:
    """Return the progress of a replay whose subscription is deleted."""
    counts = job.counts
    return ReplayProgress(job.state, done=counts.done, dead=counts.dead, discarded=counts.discarded)


def read_progress(
    backend: Backend, stored: StoredSubscription, bounds: ReplayBounds
) -> ReplayProgress:
    """Count the messages of a replay. It is done if no message is left or retrying, and no request
    on its dead letters is pending.

    MQ is counted before RQ, and RQ before DLQ: a message that moves meanwhile is counted twice,
    and never missed.
    """
    streams = [stored.streams(shard) for shard in range(stored.definition.shards)]
    mq = [where for each in streams for where in each.mq]
    ledgers = read_ledgers(backend, stored, mq)
    ended = all(ledgers[where].mark >= bounds.end(where) for where in mq)
    left = sum(
        amount_within(backend.log, where, ledgers[where].holes(bounds.end(where))).records
        for where in mq
    )
    rq = [where for each in streams for where in each.rq]
    retrying = _left(backend, rq, read_ledgers(backend, stored, rq))
    dlq = [where for each in streams for where in each.dlq]
    dead = _left(backend, dlq, read_ledgers(backend, stored, dlq))
    counts = _counts(backend, stored.name)
    waits = not ended or retrying or pending_requests(backend, stored.name)
    state = ReplayState.RUNNING if waits else ReplayState.DONE
    return ReplayProgress(state, counts.acked, left, retrying, dead, counts.discarded)


def _left(
    backend: Backend, partitions: list[Partition], ledgers: Mapping[Partition, Progress]
) -> int:
    return sum(amount_left(backend.log, where, ledgers[where]).records for where in partitions)


def _counts(backend: Backend, subscription: str) -> ShardCounts:
    found = ShardCounts()
    for _, value in scan_all(backend.table, counts_table(subscription)):
        found = found.plus(decode_counts(value))
    return found
