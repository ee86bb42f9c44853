"""Groups as people see them: their consumers, the owners and the lag of their partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from tailrace.backend.contract import Backend
from tailrace.clock import utc_time
from tailrace.errors import CorruptBatch
from tailrace.group.protocol.names import consumer_of
from tailrace.group.protocol.unit import StoredGrant, UnitState
from tailrace.group.store.definition import (
    StoredGroup,
    TopicFilter,
    consumer_name,
    group_names,
    read_group,
)
from tailrace.group.store.failed_messages import FailedMessage, failed_messages, followers
from tailrace.group.store.grants import find_leader, standing_grants
from tailrace.group.store.presence import HOLDS, members
from tailrace.group.store.streams import StreamView, first_unread, read_streams
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import record_at
from tailrace.topic.view import find


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition of a group. `owner` is the `GroupConsumer.id` of its consumer, if it has one.

    `mark` is the low-water mark, `lag` the number of offsets that are not acknowledged. `failed`
    are the messages that failed and block their keys, the lowest first, at most
    `tailrace.delivery.failed_attempts.KEPT_MAX`. If there are any, `followers` is the number of
    partitions that cannot start before this one is finished, and `followers_lag` their lag.
    """

    partition: str
    state: UnitState
    mark: int
    end: int
    lag: int
    owner: str | None
    epoch: int | None
    failed: tuple[FailedMessage, ...]
    followers: int = 0
    followers_lag: int = 0


@dataclass(frozen=True, slots=True)
class GroupConsumer:
    """A present consumer: its name, its process, and since when it is in the group.

    `silent_s` is the time since the last heartbeat of the process: more than a lease if the process
    is stopped or cut off.
    """

    id: str
    process: str
    since: datetime
    silent_s: float


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in one line.

    `standing_by` is the number of consumers without a partition. `failed` is the number of listed
    messages that block their keys. `topic_deleted`: the group consumes one topic, which does not
    exist.
    """

    name: str
    filter: str
    consumers: int
    standing_by: int
    open: int
    waiting: int
    lag: int
    failed: int
    topic_deleted: bool


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its consumers and partitions. `leader` is the leading process, if any."""

    summary: GroupSummary
    start: str
    created: datetime
    leader: str | None
    term: int | None
    consumers: tuple[GroupConsumer, ...]
    partitions: tuple[GroupPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition.

    `lag` is the number of offsets that are not acknowledged, `oldest` the time of the first such
    record, `owner` the consumer of the partition.
    """

    partition: str
    state: UnitState
    lag: int
    oldest: datetime | None
    owner: str | None


def list_groups(backend: Backend) -> list[GroupSummary]:
    """Return all groups, by name."""
    return [group.summary for group in show_groups(backend)]


def show_groups(backend: Backend) -> list[GroupDetail]:
    """Return all groups with their consumers and partitions, by name."""
    return [show_group(backend, name) for name in group_names(backend)]


def show_group(backend: Backend, name: str) -> GroupDetail:
    """Return a group with its consumers and partitions. Raises `UnknownGroup`."""
    stored = read_group(backend, name)
    owner_of = cache(lambda process: backend.holder(HOLDS + process))
    grants = {grant.unit: grant for grant in standing_grants(backend, name)}
    failed = failed_messages(backend, name)
    partitions = _with_followers(
        backend,
        [_partition(view, grants, owner_of, failed) for view in read_streams(backend, name)],
    )
    consumers = tuple(
        GroupConsumer(each.session, each.owner, each.since, each.silent_s)
        for each in members(backend, name)
        if each.owner is not None
    )
    entry = find_leader(backend, name).entry
    leader = None if entry is None else owner_of(entry.process)
    return GroupDetail(
        summary=_summary(backend, name, stored, partitions, consumers),
        start=stored.definition.start,
        created=utc_time(stored.definition.created_ms),
        leader=leader,
        term=None if entry is None or leader is None else entry.term,
        consumers=consumers,
        partitions=partitions,
    )


def lag(backend: Backend, name: str) -> list[PartitionLag]:
    """Return the unfinished partitions of a group, those with the highest lag first."""
    return lag_of(backend, show_group(backend, name))


def lag_of(backend: Backend, group: GroupDetail) -> list[PartitionLag]:
    """Return the unfinished partitions of a group that was read just now, those with the highest
    lag first."""
    name = group.summary.name
    partitions = [s for s in group.partitions if s.state is not UnitState.FINISHED]
    found = [
        PartitionLag(s.partition, s.state, s.lag, _oldest(backend, name, s), s.owner)
        for s in partitions
    ]
    return sorted(found, key=lambda partition: -partition.lag)


def _partition(
    view: StreamView,
    grants: dict[str, StoredGrant],
    owner_of: Callable[[str], str | None],
    failed: dict[str, tuple[FailedMessage, ...]],
) -> GroupPartition:
    grant = grants.get(str(view.partition))
    if grant is not None and (grant.fenced or owner_of(grant.process) is None):
        grant = None
    owner = None if grant is None else consumer_of(grant.borrower)
    epoch = None if grant is None else grant.epoch
    name = str(view.partition)
    # Entries of a waiting partition do not count: they may be of an earlier topic of its name.
    entries = failed.get(name, ()) if view.state is UnitState.OPEN else ()
    if owner is None:  # the next owner starts with the first attempt
        entries = tuple(replace(each, next_attempt=None) for each in entries)
    return GroupPartition(
        partition=name,
        state=view.state,
        mark=view.mark,
        end=view.bounds.end,
        lag=view.lag,
        owner=owner,
        epoch=epoch,
        failed=entries,
    )


def _with_followers(
    backend: Backend, partitions: list[GroupPartition]
) -> tuple[GroupPartition, ...]:
    """Return the partitions; those with failed messages with their followers."""
    waiting = {
        Partition.parse(each.partition): each.lag
        for each in partitions
        if each.state is UnitState.WAITING
    }
    found = []
    for each in partitions:
        where = Partition.parse(each.partition)
        stored = find(backend, where.topic) if each.failed and waiting else None
        if stored is not None:
            others = (other for other in waiting if other.topic == where.topic)
            lags = [waiting[other] for other in followers(stored.definition, where, others)]
            each = replace(each, followers=len(lags), followers_lag=sum(lags))
        found.append(each)
    return tuple(found)


def _summary(
    backend: Backend,
    name: str,
    stored: StoredGroup,
    partitions: tuple[GroupPartition, ...],
    consumers: tuple[GroupConsumer, ...],
) -> GroupSummary:
    topics = TopicFilter(stored.definition.filter)
    open_count = sum(partition.state is UnitState.OPEN for partition in partitions)
    return GroupSummary(
        name=name,
        filter=stored.definition.filter,
        consumers=len(consumers),
        standing_by=max(0, len(consumers) - open_count),
        open=open_count,
        waiting=sum(partition.state is UnitState.WAITING for partition in partitions),
        lag=sum(partition.lag for partition in partitions),
        failed=sum(len(partition.failed) for partition in partitions),
        topic_deleted=topics.exact and find(backend, topics.text) is None,
    )


def _oldest(backend: Backend, group: str, partition: GroupPartition) -> datetime | None:
    """Return the time of the first unacknowledged record; None if there is none or it is
    damaged."""
    if not partition.lag:
        return None
    where = Partition.parse(partition.partition)
    progress = Progress.load(backend.table, consumer_name(group), where)
    try:
        offset = first_unread(backend.log, where, progress, backend.log.bounds(where))
        record = None if offset is None else record_at(backend.log, where, offset)
    except (CorruptBatch, LookupError):  # or removed meanwhile
        return None
    return None if record is None else utc_time(record.timestamp)
