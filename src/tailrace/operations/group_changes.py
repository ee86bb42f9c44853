"""Sending a group elsewhere, and deleting one: each as a plan to look at and as the deed.

Both are audited; a group's owners are shut out in the commit that begins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.amount import format_amount
from tailrace.backend.contract import Transaction
from tailrace.group.definition import read_group
from tailrace.group.opening import delete_group
from tailrace.group.sending import plan_seek as targets_of
from tailrace.group.view import show_group
from tailrace.hub import Hub
from tailrace.operations.audit import AuditEntry, audit_append, audit_entry, audit_topic
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
    targets = targets_of(hub.backend, name, to)
    after = {str(where): offset for where, offset in targets.items()}
    return _seek_plan(name, to, after, _marks(hub, name))


def seek(hub: Hub, name: str, to: str, reason: str = "") -> GroupPlan:
    """Send a group to a place, forward or back, whether consumers run or not; what was done."""
    before = _marks(hub, name)
    after = hub.group(name).seek(to)
    was = {where: before.get(where, 0) for where in after}
    _audit(hub, audit_entry("group seek", name, before=was, after=after, reason=reason))
    return _seek_plan(name, to, after, before)


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
    _audit(hub, audit_entry("group delete", name, before=before, reason=reason))
    return plan


def _marks(hub: Hub, name: str) -> dict[str, int]:
    return {stream.partition: stream.mark for stream in show_group(hub.backend, name).streams}


def _seek_plan(
    name: str, to: str, targets: Mapping[str, int], before: Mapping[str, int]
) -> GroupPlan:
    moved = {
        where: (before.get(where, 0), offset)
        for where, offset in targets.items()
        if before.get(where, 0) != offset
    }
    if not moved:
        return GroupPlan(name, bool(targets), (f"{name}: is there, at {to}; nothing moves",))
    again = sum(max(0, was - offset) for was, offset in moved.values())
    skipped = sum(max(0, offset - was) for was, offset in moved.values())
    lines = [f"{name} to {to}: {format_amount(len(moved), 'stream')} of {len(targets)} move"]
    lines += [
        f"  {where}  {was:,} -> {offset:,}"
        for where, (was, offset) in list(moved.items())[:_SHOWN_MAX]
    ]
    if len(moved) > _SHOWN_MAX:
        lines.append(f"  ... and {len(moved) - _SHOWN_MAX} more")
    if again:
        lines.append(f"  again    up to {format_amount(again, 'message')} are delivered again")
    if skipped:
        lines.append(f"  skipped  up to {format_amount(skipped, 'message')} are not delivered")
    return GroupPlan(name, True, tuple(lines))


def _audit(hub: Hub, entry: AuditEntry) -> None:
    topic = audit_topic(hub)
    commit_following(
        hub.backend,
        {topic.name: topic.view},
        lambda: Transaction((audit_append(topic, entry),), since=topic.view.target.since),
    )
