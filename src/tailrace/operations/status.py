"""Is the hub well? Cheap checks only, each with the command or the deed that helps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.amount import format_amount
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.backend.embedded.reading import SegmentInfo
from tailrace.errors import BackendUnavailable
from tailrace.group.view import GroupDetail, GroupSummary, show_groups
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.holdings import embedded_log, layout_of
from tailrace.operations.hub_info import HubSummary, file_bytes, hub_info
from tailrace.operations.pipelines import PipelineView, view_pipelines
from tailrace.operations.segments import partitions_in
from tailrace.operations.standstill import name_failed, silent_owner
from tailrace.pipeline.books import State
from tailrace.topic.lineage import is_usual_count

DISK_PERCENT_MAX: Final = 95
DISK_FREE_BYTES_MIN: Final = 10 << 30
"""A disk is nearly full when it is fuller than the one and has less free than the other."""

WAL_BYTES_MAX: Final = 100 << 20
"""A write-ahead log beyond this means that something keeps it from starting over."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not well: what it is about, what it is, and what helps."""

    subject: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class HubStatus:
    """The problems found, none when all is well, and what there is; nothing if it did not open.

    `notes` are well, and worth knowing.
    """

    well: bool
    problems: tuple[Problem, ...]
    hub: HubSummary | None
    pipelines: int = 0
    groups: int = 0
    notes: tuple[Problem, ...] = ()


def status(hub: Hub) -> HubStatus:
    """Look at everything that can be seen without reading the records."""
    info = hub_info(hub)
    pipelines = view_pipelines(hub)
    groups = show_groups(hub.backend)
    problems = [*_gaps(hub), *_disk(info), *_database(hub, info), *_files(hub)]
    for pipeline in pipelines:
        problems += [*_reader(pipeline), *_writers(pipeline), *_letters(pipeline)]
    for group in groups:
        problems += [*_unattended(group.summary), *_failed(group), *_silent(hub, group)]
    notes = tuple(
        note
        for group in groups
        for note in (*_standing_by(hub, group.summary), *_topic_deleted(group.summary))
    )
    return HubStatus(not problems, tuple(problems), info, len(pipelines), len(groups), notes)


def unavailable(path: str, error: BackendUnavailable) -> HubStatus:
    """The status of a hub that could not be opened in time."""
    remedy = "it goes on when the process it names does"
    if "process" not in str(error):
        remedy = "see to what it says, then look again"
    return HubStatus(False, (Problem(f"hub {path}", str(error), remedy),), None)


def _gaps(hub: Hub) -> Iterator[Problem]:
    if isinstance(hub.backend, EmbeddedBackend):
        for gap in hub.backend.info.gaps:
            remedy = "push again what the producers still have, then: tailrace hub accept-gaps"
            yield Problem("gap", gap, remedy)


def _disk(info: HubSummary) -> Iterator[Problem]:
    full = info.disk_percent > DISK_PERCENT_MAX
    if full and info.disk_free_bytes < DISK_FREE_BYTES_MIN:
        free_mb = info.disk_free_bytes // 1_000_000
        what = f"{info.disk_percent} % full, {free_mb:,} MB free"
        yield Problem("disk", what, "free some space, or: tailrace topic delete TOPIC")


def _database(hub: Hub, info: HubSummary) -> Iterator[Problem]:
    if info.wal_bytes > WAL_BYTES_MAX:
        what = f"hub.db-wal has {info.wal_bytes:,} bytes and should start over long before"
        yield Problem("database", what, "stop readers that are stuck; the next commit shrinks it")
    if not layout_of(hub).reserve.exists():
        what = "hub.reserve was given up on a full disk"
        yield Problem("reserve", what, "free 16 MiB and more: the next push makes it again")


def _reader(pipeline: PipelineView) -> Iterator[Problem]:
    if pipeline.reader_failed is not None:
        what = f"FAILED {pipeline.reader_failed:%H:%M}"
        remedy = f"tailrace pipeline status {pipeline.name}"
        yield Problem(f"reader {pipeline.name}", what, remedy)


def _writers(pipeline: PipelineView) -> Iterator[Problem]:
    for writer in pipeline.writers:
        if writer.state is State.FAILED:
            since = "" if writer.since is None else f" {writer.since:%H:%M}"
            where = "" if writer.position is None else f" at {writer.position}"
            what = f"FAILED{since}{where}, {writer.behind:,} behind"
            yield Problem(f"writer {writer.name}", what, f"tailrace explain {writer.name}")


def _letters(pipeline: PipelineView) -> Iterator[Problem]:
    waiting = {writer.name: writer.dead_letters for writer in pipeline.writers}
    waiting[pipeline.name] = pipeline.unreadable
    for name, count in waiting.items():
        if count:
            subject = f"{'writer' if '/' in name else 'reader'} {name}"
            remedy = f"tailrace dlq {name} list --by error"
            yield Problem(subject, format_amount(count, "dead letter"), remedy)


def _unattended(group: GroupSummary) -> Iterator[Problem]:
    if group.behind and not group.consumers:
        what = f"{group.behind:,} behind, and no consumer runs"
        yield Problem(f"group {group.name}", what, f"tailrace lag {group.name}")


def _failed(group: GroupDetail) -> Iterator[Problem]:
    for stream in group.streams:
        if stream.failed:
            first, *others = stream.failed
            more = f" and {len(others):,} more" if others else ""
            what = f"stands still at {name_failed(first)}{more}, {stream.behind:,} behind"
            remedy = f"tailrace explain {stream.partition}"
            yield Problem(f"group {group.summary.name}", what, remedy)


def _silent(hub: Hub, group: GroupDetail) -> Iterator[Problem]:
    found = {silent.id: silent for s in group.streams if (silent := silent_owner(hub, group, s))}
    for each in found.values():
        count = sum(stream.owner == each.id for stream in group.streams)
        what = (
            f"{each.id} has {format_amount(count, 'stream')}"
            f" and gave no sign of life for {each.silent_s:.0f} s"
        )
        yield Problem(
            f"group {group.summary.name}", what, f"tailrace group show {group.summary.name}"
        )


def _topic_deleted(group: GroupSummary) -> Iterator[Problem]:
    if group.topic_deleted:
        what = f"its topic {group.filter} was deleted"
        yield Problem(f"group {group.name}", what, f"tailrace group delete {group.name}")


def _standing_by(hub: Hub, group: GroupSummary) -> Iterator[Problem]:
    """Consumers without a stream, and the scaling of a topic that would give them one."""
    if group.standing_by:
        what = f"{group.standing_by} of {group.consumers} consumers stand by"
        remedy = f"tailrace group show {group.name}"
        if group.filter in hub.topics():
            partitions = hub.topic(group.filter).view.definition.shape.partitions
            if partitions < group.consumers:  # else streams wait for others, and will be enough
                counts = filter(is_usual_count, itertools.count(partitions, partitions))
                enough = next(count for count in counts if count >= group.consumers)
                remedy = f"tailrace topic scale {group.filter} {enough}"
        yield Problem(f"group {group.name}", what, remedy)


def _files(hub: Hub) -> Iterator[Problem]:
    log = embedded_log(hub)
    for partition in partitions_in(hub, None):
        for info in log.segments(partition):
            if problem := _file(partition, info):
                yield problem


def _file(partition: Partition, info: SegmentInfo) -> Problem | None:
    missing_bytes = info.bytes - file_bytes(info.log_path)
    if missing_bytes <= 0:
        return None
    gone = not info.log_path.exists()
    what = "is gone" if gone else f"ends {missing_bytes:,} bytes early"
    return Problem(
        f"partition {partition}",
        f"{info.log_path.name} {what}",
        f"tailrace segment verify {partition}",
    )
