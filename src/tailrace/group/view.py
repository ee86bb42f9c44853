"""Groups as people see them: who consumes what, how far they are, and what waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from tailrace.backend.contract import Backend
from tailrace.errors import CorruptBatch
from tailrace.group.definition import (
    StoredGroup,
    TopicFilter,
    consumer_name,
    group_names,
    read_group,
)
from tailrace.group.failed import FailedMessage, failed_messages
from tailrace.group.grants import look, standing_grants
from tailrace.group.members import members
from tailrace.group.naming import consumer_of
from tailrace.group.probing import HOLDS
from tailrace.group.streams import StreamView, first_unread, read_streams
from tailrace.group.unit import StoredGrant, UnitState
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import record_at
from tailrace.topic.view import find


@dataclass(frozen=True, slots=True)
class GroupStream:
    """A stream of a group. `owner` is the consumer that has it, if one does: a
    `GroupConsumer.id`.

    `failed` are messages, the lowest first, that hold up their keys: at most
    `tailrace.group.failed.KEPT_MAX`, for there may be thousands.
    """

    partition: str
    state: UnitState
    mark: int
    end: int
    behind: int
    owner: str | None
    epoch: int | None
    failed: tuple[FailedMessage, ...]


@dataclass(frozen=True, slots=True)
class GroupConsumer:
    """A consumer that is there now, by its name, in which process and since when.

    `silent_s` is for how long the process has given no sign of life: more than a lease, when
    it is stopped or cut off.
    """

    id: str
    process: str
    since: datetime
    silent_s: float


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in one line. `standing_by` counts consumers for which no stream is left, `failed` the
    messages that hold up their keys, as far as they are listed. `topic_deleted`: the one topic that
    it shares is not there."""

    name: str
    filter: str
    consumers: int
    standing_by: int
    open: int
    waiting: int
    behind: int
    failed: int
    topic_deleted: bool


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group. `leader` is the process that leads it, if one does; `term` numbers that."""

    summary: GroupSummary
    start: str
    created: datetime
    leader: str | None
    term: int | None
    consumers: tuple[GroupConsumer, ...]
    streams: tuple[GroupStream, ...]


@dataclass(frozen=True, slots=True)
class StreamLag:
    """How far a group is behind in a stream; `oldest` is the time of the first that waits, `owner`
    the consumer that has it."""

    partition: str
    state: UnitState
    behind: int
    oldest: datetime | None
    owner: str | None


def list_groups(backend: Backend) -> list[GroupSummary]:
    """All groups, by name."""
    return [group.summary for group in show_groups(backend)]


def show_groups(backend: Backend) -> list[GroupDetail]:
    """All groups with all there is to see, by name."""
    return [show_group(backend, name) for name in group_names(backend)]


def show_group(backend: Backend, name: str) -> GroupDetail:
    """A group; `UnknownGroup` when there is none."""
    stored = read_group(backend, name)
    owner_of = cache(lambda process: backend.holder(HOLDS + process))
    grants = {grant.unit: grant for grant in standing_grants(backend, name)}
    failed = failed_messages(backend, name)
    streams = tuple(_stream(view, grants, owner_of, failed) for view in read_streams(backend, name))
    consumers = tuple(
        GroupConsumer(each.session, each.owner, each.since, each.silent_s)
        for each in members(backend, name)
        if each.owner is not None
    )
    entry = look(backend, name).entry
    leader = None if entry is None else owner_of(entry.process)
    return GroupDetail(
        summary=_summary(backend, name, stored, streams, consumers),
        start=stored.definition.start,
        created=datetime.fromtimestamp(stored.definition.created_ms / 1000, UTC),
        leader=leader,
        term=None if entry is None or leader is None else entry.term,
        consumers=consumers,
        streams=streams,
    )


def lag(backend: Backend, name: str) -> list[StreamLag]:
    """The streams of a group that are not finished, those with most to do first."""
    streams = [s for s in show_group(backend, name).streams if s.state is not UnitState.FINISHED]
    found = [
        StreamLag(s.partition, s.state, s.behind, _oldest(backend, name, s), s.owner)
        for s in streams
    ]
    return sorted(found, key=lambda stream: -stream.behind)


def _stream(
    view: StreamView,
    grants: dict[str, StoredGrant],
    owner_of: Callable[[str], str | None],
    failed: dict[str, tuple[FailedMessage, ...]],
) -> GroupStream:
    grant = grants.get(str(view.partition))
    if grant is not None and (grant.fenced or owner_of(grant.process) is None):
        grant = None
    owner = None if grant is None else consumer_of(grant.borrower)
    epoch = None if grant is None else grant.epoch
    name = str(view.partition)
    return GroupStream(
        partition=name,
        state=view.state,
        mark=view.mark,
        end=view.bounds.end,
        behind=view.behind,
        owner=owner,
        epoch=epoch,
        # What waits is not handed out, or is of an earlier topic of that name.
        failed=failed.get(name, ()) if view.state is UnitState.OPEN else (),
    )


def _summary(
    backend: Backend,
    name: str,
    stored: StoredGroup,
    streams: tuple[GroupStream, ...],
    consumers: tuple[GroupConsumer, ...],
) -> GroupSummary:
    topics = TopicFilter(stored.definition.filter)
    open_count = sum(stream.state is UnitState.OPEN for stream in streams)
    return GroupSummary(
        name=name,
        filter=stored.definition.filter,
        consumers=len(consumers),
        standing_by=max(0, len(consumers) - open_count),
        open=open_count,
        waiting=sum(stream.state is UnitState.WAITING for stream in streams),
        behind=sum(stream.behind for stream in streams),
        failed=sum(len(stream.failed) for stream in streams),
        topic_deleted=topics.exact and find(backend, topics.text) is None,
    )


def _oldest(backend: Backend, group: str, stream: GroupStream) -> datetime | None:
    """The time of the first record that is not acknowledged; None for one that is damaged."""
    if not stream.behind:
        return None
    where = Partition.parse(stream.partition)
    progress = Progress.load(backend.table, consumer_name(group), where)
    try:
        offset = first_unread(backend.log, where, progress, backend.log.bounds(where))
        record = None if offset is None else record_at(backend.log, where, offset)
    except (CorruptBatch, LookupError):  # or gone since the look
        return None
    return None if record is None else datetime.fromtimestamp(record.timestamp / 1000, UTC)
