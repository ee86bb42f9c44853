"""Sending a group elsewhere, passing over a message, deleting a group: plans to look at, and deeds.

All are audited; the owners that they concern are shut out in the commit that begins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.amount import format_amount
from tailrace.backend.contract import Transaction
from tailrace.group.definition import consumer_name, read_group
from tailrace.group.group import checked_reason
from tailrace.group.opening import delete_group
from tailrace.group.sending import plan_seek as targets_of
from tailrace.group.sending import plan_skip as would_skip
from tailrace.group.view import show_group
from tailrace.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations.audit import AuditEntry, audit_append, audit_entry, audit_topic
from tailrace.topic.ledger import Progress
from tailrace.topic.view import commit_following

_SHOWN_MAX = 12


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What a change would do, in words. Without `changes` there is nothing to do."""

    group: str
    changes: bool
    lines: tuple[str, ...]


def plan_seek(hub: Hub, name: str, to: str) -> GroupPlan:
    """What `seek` would do."""
    return _seek_plan(hub, name, to, targets_of(hub.backend, name, to))


def seek(hub: Hub, name: str, to: str, reason: str = "") -> GroupPlan:
    """Send a group to a place, forward or back, whether consumers run or not; what was done."""
    plan = plan_seek(hub, name, to)
    before = _marks(hub, name)
    after = hub.group(name).seek(to)
    was = {where: before.get(where, 0) for where in after}
    done = {**after, "done": f"sent to {to}"}
    _audit(hub, audit_entry("group seek", name, before=was, after=done, reason=reason))
    return plan


def plan_skip(hub: Hub, name: str, position: str, reason: str) -> GroupPlan:
    """What `skip` would do; `InvalidValue` for an empty reason."""
    checked_reason(reason)
    where = Position.parse(position)
    if not would_skip(hub.backend, name, where):
        line = f"{name}: {position} is acknowledged already; nothing to do"
        return GroupPlan(name, False, (line,))
    unit = str(Partition(*where[:3]))
    streams = show_group(hub.backend, name).streams
    owner = next((stream.owner for stream in streams if stream.partition == unit), None)
    lines = [f"{name}: {position} counts as acknowledged, and is not delivered"]
    if owner is not None:
        lines.append(f"  owner  {owner} gets {unit} anew; what it has of it in hand comes again")
    lines.append(f"  undo   a seek to {position} delivers it, and all behind it again")
    return GroupPlan(name, True, tuple(lines))


def skip(hub: Hub, name: str, position: str, reason: str) -> GroupPlan:
    """Pass over one message of a group, whether consumers run or not; the plan that was followed.

    Nothing is done, nor audited, when it is acknowledged by now.
    """
    plan = plan_skip(hub, name, position, reason)
    if hub.group(name).skip(position, reason=reason):
        after = {"acknowledged": position, "done": f"skipped {position}"}
        _audit(hub, audit_entry("group skip", name, after=after, reason=reason))
    return plan


def plan_delete(hub: Hub, name: str) -> GroupPlan:
    """What `delete` would do."""
    group = show_group(hub.backend, name).summary
    lines = [f"{name}: forgotten for ever, with how far it is in {group.filter}"]
    if group.consumers:
        running = format_amount(group.consumers, "consumer")
        lines.append(f"  stops   {running} of it, with an error")
    lines += [
        f"  behind  {format_amount(group.behind, 'message')} that it has not acknowledged",
        "  undo    none; a new group of that name begins anew",
    ]
    return GroupPlan(name, True, tuple(lines))


def delete(hub: Hub, name: str, reason: str = "") -> GroupPlan:
    """Delete a group; the plan that was followed."""
    plan = plan_delete(hub, name)
    before = {"filter": read_group(hub.backend, name).definition.filter, **_marks(hub, name)}
    delete_group(hub.backend, name)
    after = {"done": "deleted"}
    _audit(hub, audit_entry("group delete", name, before=before, after=after, reason=reason))
    return plan


def _marks(hub: Hub, name: str) -> dict[str, int]:
    return {stream.partition: stream.mark for stream in show_group(hub.backend, name).streams}


def _seek_plan(hub: Hub, name: str, to: str, targets: Mapping[Partition, int]) -> GroupPlan:
    """What targets mean: also a stream that is at its own has moved if more is acknowledged."""
    moved: dict[Partition, Progress] = {}
    again = skipped = 0
    for where, offset in targets.items():
        progress = Progress.load(hub.backend.table, consumer_name(name), where)
        if (progress.mark, progress.highest + 1) != (offset, offset):
            moved[where] = progress
            again += _acknowledged(progress, offset)
            skipped += sum(end - start for start, end in progress.holes(offset))
    if not moved:
        return GroupPlan(name, False, (f"{name}: is there, at {to}; nothing to do",))
    lines = [f"{name} to {to}: moves {format_amount(len(moved), 'stream')} of {len(targets)}"]
    lines += [
        f"  {where}  {progress.mark:,} -> {targets[where]:,}"
        for where, progress in list(moved.items())[:_SHOWN_MAX]
    ]
    if len(moved) > _SHOWN_MAX:
        lines.append(f"  ... and {len(moved) - _SHOWN_MAX} more")
    if again:
        lines.append(f"  again    up to {format_amount(again, 'message')} delivered before")
    if skipped:
        lines.append(f"  skipped  up to {format_amount(skipped, 'message')} not delivered yet")
    return GroupPlan(name, True, tuple(lines))


def _acknowledged(progress: Progress, offset: int) -> int:
    """How many offsets are acknowledged from one on."""
    ranges = [(0, progress.mark), *progress.ranges()]
    return sum(max(0, end - max(start, offset)) for start, end in ranges)


def _audit(hub: Hub, entry: AuditEntry) -> None:
    topic = audit_topic(hub)
    commit_following(
        hub.backend,
        {topic.name: topic.view},
        lambda: Transaction((audit_append(topic, entry),), since=topic.view.target.since),
    )
