"""The health of a hub: quick checks, each problem with a command or action that helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tailrace.amount import format_amount
from tailrace.backend.capabilities import InDirectory, SegmentInfo
from tailrace.clock import Clock, SystemClock, utc_time
from tailrace.errors import BackendUnavailable
from tailrace.group.store.describe import GroupDetail, GroupSummary, show_groups
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.dead_letters.mailboxes import count_group_letters
from tailrace.operations.group.stuck import (
    FailedState,
    describe_behind,
    describe_more,
    failed_state,
    name_failed,
    silent_owner,
)
from tailrace.operations.hub_info import HubSummary, hub_info
from tailrace.operations.pipeline.describe import PipelineView, WriterView, view_pipelines
from tailrace.operations.problem import Problem
from tailrace.operations.queue.checks import check_accounts, check_replays
from tailrace.operations.source.checks import check_source
from tailrace.operations.source.describe import view_sources
from tailrace.operations.storage.segments import partitions_in
from tailrace.operations.storage.storage_use import missing_bytes, segments_in
from tailrace.operations.subscription.checks import check_subscription
from tailrace.operations.subscription.describe import describe_each
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.topic.scaling import enough_partitions

DISK_PERCENT_MAX: Final = 95
DISK_FREE_BYTES_MIN: Final = 10 << 30
"""A disk is nearly full if it is fuller than the first and has less free than the second."""

RESTART_MAX: Final = timedelta(seconds=60)
"""How long a pipeline that was stopped cleanly may lag before that is a problem: a restart."""

WAL_BYTES_MAX: Final = 100 << 20
"""A larger write-ahead log means that a reader keeps it from being reset."""


WAIT_MAX: Final = timedelta(minutes=1)
"""A writer that has waited longer for its sink is a problem; before, it is a note."""

_FAILED: Final = {
    FailedState.STUCK: "stuck at",
    FailedState.RETRYING: "retrying",
    FailedState.UNATTENDED: "waiting for a consumer at",
}


@dataclass(frozen=True, slots=True)
class HubStatus:
    """The health of a hub. `well` is True if there are no problems.

    `hub` is None if the hub could not be opened. `pipelines`, `groups`, `subscriptions`, `queues`
    and `sources`, without those of pipelines, are counts. `notes` are not problems, but worth
    knowing.
    """

    well: bool
    problems: tuple[Problem, ...]
    hub: HubSummary | None
    pipelines: int = 0
    groups: int = 0
    notes: tuple[Problem, ...] = ()
    subscriptions: int = 0
    queues: int = 0
    sources: int = 0


def status(hub: Hub, clock: Clock | None = None) -> HubStatus:
    """Check everything that can be checked without reading the records."""
    now = utc_time((clock or SystemClock()).now_ms())
    info = hub_info(hub)
    pipelines = view_pipelines(hub)
    groups = show_groups(hub.backend)
    problems = [*_gaps(hub), *_disk(info), *_database(hub), *_files(hub)]
    notes: list[Problem] = []
    for pipeline in pipelines:
        problems += [*_reader(pipeline), *_writers(pipeline), *_letters(pipeline)]
        if pipeline.start_error is not None:
            problems.append(_not_started(pipeline, now))
        elif stopped := _stopped(pipeline, now):
            is_problem = _is_behind(pipeline) and not _stopped_just_now(pipeline, now)
            (problems if is_problem else notes).append(stopped)
        for since, waiting in _waiting(pipeline, now):
            (problems if now - since > WAIT_MAX else notes).append(waiting)
    for group in groups:
        problems += [*_unattended(group.summary), *_failed(group), *_silent(hub, group)]
        problems += _letters_of_group(hub, group.summary.name)
        notes += [*_standing_by(hub, group.summary), *_topic_deleted(group.summary)]
    subscriptions = describe_each(hub)
    for each in subscriptions:
        found = check_subscription(hub, each, now)
        problems += found.problems
        notes += found.notes
        if each.queue and not each.topic_deleted:
            problems += [*check_accounts(hub, each.name), *check_replays(hub, each.name)]
    sources = view_sources(hub)
    for source in sources:
        checked = check_source(hub, source, now)
        problems += checked.problems
        notes += checked.notes
    return HubStatus(
        not problems,
        tuple(problems),
        info,
        len(pipelines),
        len(groups),
        tuple(notes),
        sum(not each.queue for each in subscriptions),
        sum(each.queue for each in subscriptions),
        sum(not each.pipeline for each in sources),
    )


def unavailable(path: str, error: BackendUnavailable) -> HubStatus:
    """Return the status of a hub that could not be opened in time."""
    remedy = "wait for that process, or end it"
    if "process" not in str(error):
        remedy = "fix the cause, then run tailrace status again"
    return HubStatus(False, (Problem(f"hub {path}", str(error), remedy),), None)


def _gaps(hub: Hub) -> Iterator[Problem]:
    if isinstance(hub.backend, InDirectory):
        for gap in hub.backend.info.gaps:
            remedy = "push the lost messages again, then: tailrace hub accept-gaps"
            yield Problem("gap", gap, remedy)


def _disk(info: HubSummary) -> Iterator[Problem]:
    if info.disk_percent is None or info.disk_free_bytes is None:
        return
    if info.disk_percent > DISK_PERCENT_MAX and info.disk_free_bytes < DISK_FREE_BYTES_MIN:
        free_mb = info.disk_free_bytes // 1_000_000
        what = f"{info.disk_percent} % full, {free_mb:,} MB free"
        yield Problem("disk", what, "free disk space, or: tailrace topic delete TOPIC")


def _database(hub: Hub) -> Iterator[Problem]:
    if not isinstance(hub.backend, InDirectory):
        return
    use = hub.backend.directory_use()
    if use.wal_bytes > WAL_BYTES_MAX:
        what = f"hub.db-wal has {use.wal_bytes:,} bytes, expected less than {WAL_BYTES_MAX:,}"
        yield Problem("database", what, "end stuck readers; the next commit shrinks it")
    if not use.has_reserve:
        what = "hub.reserve is missing: the disk was full, or a backup without it was restored"
        yield Problem("reserve", what, "free at least 16 MiB; the next push creates it again")


def _reader(pipeline: PipelineView) -> Iterator[Problem]:
    if pipeline.reader_failed is not None:
        what = f"FAILED {pipeline.reader_failed:%H:%M}"
        remedy = f"tailrace pipeline status {pipeline.name}"
        yield Problem(f"reader {pipeline.name}", what, remedy)
    if pipeline.reader_waits is not None:
        what = ", ".join(pipeline.reader_waits.split(" · ")[:2])
        remedy = "check the path of the reader; it waits for the first file"
        yield Problem(f"reader {pipeline.name}", what, remedy)


def _not_started(pipeline: PipelineView, now: datetime) -> Problem:
    """Return that the last run of a pipeline did not start, and why."""
    since = "" if pipeline.last_stop is None else f" {_time(pipeline.last_stop, now)}"
    reason = str(pipeline.start_error).partition(" · ")[0]
    remedy = f"tailrace explain {pipeline.name}"
    return Problem(f"pipeline {pipeline.name}", f"DID NOT START{since}: {reason}", remedy)


def _stopped(pipeline: PipelineView, now: datetime) -> Problem | None:
    """Return that a pipeline does not run, if it lags or was meant to run until it is stopped."""
    if pipeline.running is not None or not pipeline.writers:
        return None
    if not _is_behind(pipeline) and (not pipeline.follows or pipeline.reader_failed is not None):
        return None
    what = "not running"
    if pipeline.last_stop is not None:
        what += f" since {_time(pipeline.last_stop, now)}"
    elif pipeline.last_start is not None:
        what += f", its run of {_time(pipeline.last_start, now)} was killed"
    if pipeline.reader_unfinished:
        what += ", its reader has not finished"
    lagging = sorted(_lagging(pipeline), key=lambda writer: writer.lag, reverse=True)
    if lagging:
        what += f", {lagging[0].name} lags {lagging[0].lag:,}"
        what += f" and {len(lagging) - 1} more" if lagging[1:] else ""
    if not _is_behind(pipeline):
        what += ", caught up"
    return Problem(f"pipeline {pipeline.name}", what, pipeline.run_command)


def _is_behind(pipeline: PipelineView) -> bool:
    """True if a pipeline has work left that its failures, reported elsewhere, do not explain."""
    return pipeline.reader_unfinished or bool(_lagging(pipeline))


def _lagging(pipeline: PipelineView) -> list[WriterView]:
    return [w for w in pipeline.writers if w.lag and w.state is not WriterStatus.FAILED]


def _stopped_just_now(pipeline: PipelineView, now: datetime) -> bool:
    """True for a pipeline that was stopped cleanly, and may be about to start again."""
    return pipeline.last_stop is not None and now - pipeline.last_stop < RESTART_MAX


def _time(time: datetime, now: datetime) -> str:
    """Return a time of day, with its date if it is not of the last 24 hours."""
    return f"{time:%H:%M}" if now - time < timedelta(days=1) else f"{time:%Y-%m-%d %H:%M}"


def _writers(pipeline: PipelineView) -> Iterator[Problem]:
    for writer in pipeline.writers:
        if writer.state is WriterStatus.FAILED:
            since = "" if writer.since is None else f" {writer.since:%H:%M}"
            where = "" if writer.position is None else f" at {writer.position}"
            what = f"FAILED{since}{where}, lag {writer.lag:,}"
            yield Problem(f"writer {writer.name}", what, f"tailrace explain {writer.name}")


def _waiting(pipeline: PipelineView, now: datetime) -> Iterator[tuple[datetime, Problem]]:
    """Yield the writers that wait for their sinks, with the begin of the wait."""
    for writer in pipeline.writers:
        if writer.state is WriterStatus.WAITING and writer.since is not None:
            since = _time(writer.since, now)
            what = f"WAITING since {since} for {writer.waits_for}, lag {writer.lag:,}"
            remedy = f"tailrace explain {writer.name}"
            yield writer.since, Problem(f"writer {writer.name}", what, remedy)


def _letters(pipeline: PipelineView) -> Iterator[Problem]:
    pending = {writer.name: writer.dead_letters for writer in pipeline.writers}
    pending[pipeline.name] = pipeline.unreadable
    for name, count in pending.items():
        if count:
            subject = f"{'writer' if '/' in name else 'reader'} {name}"
            remedy = f"tailrace dlq {name} list --by error"
            yield Problem(subject, format_amount(count, "pending dead letter"), remedy)


def _letters_of_group(hub: Hub, group: str) -> Iterator[Problem]:
    if count := count_group_letters(hub, group):
        remedy = f"tailrace dlq {group} list --by error"
        yield Problem(f"group {group}", format_amount(count, "pending dead letter"), remedy)


def _unattended(group: GroupSummary) -> Iterator[Problem]:
    if group.lag and not group.consumers:
        what = f"lag {group.lag:,}, no consumer runs"
        yield Problem(f"group {group.name}", what, f"tailrace lag {group.name}")


def _failed(group: GroupDetail) -> Iterator[Problem]:
    for each in group.partitions:
        if each.failed:
            first = next((f for f in each.failed if f.next_attempt is None), each.failed[0])
            verb = _FAILED[failed_state(first, each)]
            times = format_amount(first.attempts, "time")
            behind = describe_behind(first, each)
            what = f"{verb} {name_failed(first)}{describe_more(each)}, failed {times}"
            what += (f", {behind}" if behind else "") + f", lag {each.lag:,}"
            remedy = f"tailrace explain {each.partition}"
            yield Problem(f"group {group.summary.name}", what, remedy)


def _silent(hub: Hub, group: GroupDetail) -> Iterator[Problem]:
    found = {silent.id: silent for p in group.partitions if (silent := silent_owner(hub, group, p))}
    for each in found.values():
        count = sum(partition.owner == each.id for partition in group.partitions)
        owned = format_amount(count, "partition")
        what = f"{each.id} owns {owned}, no heartbeat for {each.silent_s:.0f} s"
        yield Problem(
            f"group {group.summary.name}", what, f"tailrace group show {group.summary.name}"
        )


def _topic_deleted(group: GroupSummary) -> Iterator[Problem]:
    if group.topic_deleted:
        what = f"its topic {group.filter} was deleted"
        yield Problem(f"group {group.name}", what, f"tailrace group delete {group.name}")


def _standing_by(hub: Hub, group: GroupSummary) -> Iterator[Problem]:
    """Yield a note on consumers without a partition, with the scaling that gives them one."""
    if group.standing_by:
        what = f"{group.standing_by} of {format_amount(group.consumers, 'consumer')} on standby"
        remedy = f"tailrace group show {group.name}"
        if group.filter in hub.topics():
            partitions = hub.topic(group.filter).view.definition.shape.partitions
            if partitions < group.consumers:  # else partitions wait for others, and will be enough
                enough = enough_partitions(partitions, group.consumers)
                remedy = f"tailrace topic scale {group.filter} {enough}"
        yield Problem(f"group {group.name}", what, remedy)


def _files(hub: Hub) -> Iterator[Problem]:
    for partition in partitions_in(hub, None):
        for info in segments_in(hub, partition):
            if problem := _file(partition, info):
                yield problem


def _file(partition: Partition, info: SegmentInfo) -> Problem | None:
    missing = missing_bytes(info)
    if not missing:
        return None
    early = f"ends {format_amount(missing, 'byte')} early"
    what = early if info.log_path.exists() else "is missing"
    return Problem(
        f"partition {partition}",
        f"{info.log_path.name} {what}",
        f"tailrace segment verify {partition}",
    )
