"""Changes of a group: seek, skip, delete. Each has a plan, and a function that applies it.

Every change is audited. It fences the owners of the partitions concerned in its first commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.amount import format_amount
from tailrace.group.group import check_reason
from tailrace.group.store import seek as group_seek
from tailrace.group.store.definition import consumer_name, read_group
from tailrace.group.store.describe import show_group
from tailrace.group.store.lifecycle import delete_group
from tailrace.hub.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.dead_letters.mailboxes import count_group_letters
from tailrace.operations.explanation import Fact
from tailrace.operations.plan import ChangePlan
from tailrace.topic.ledger import Progress

SHOWN_MAX: Final = 12
"""Number of partitions that the text of a seek plan lists."""


@dataclass(frozen=True, slots=True)
class PartitionSeek:
    """A partition that a seek moves: its low-water mark before and after.

    The mark may stay: then offsets above it are acknowledged, and the seek clears them.
    """

    partition: str
    before: int
    after: int


def plan_seek(hub: Hub, name: str, to: str) -> ChangePlan:
    """Return the plan of `seek`."""
    return _seek_plan(hub, name, to, group_seek.plan_seek(hub.backend, name, to))


def seek(hub: Hub, name: str, to: str, reason: str = "") -> ChangePlan:
    """Move a group to another position, forward or back. Return the plan that was applied.

    Running consumers continue there at once.
    """
    plan = plan_seek(hub, name, to)
    before = _marks(hub, name)
    after = hub.group(name).seek(to)
    was = {where: before.get(where, 0) for where in after}
    done = {**after, "done": f"moved to {to}"}
    append_audit(hub, audit_entry("group seek", name, before=was, after=done, reason=reason))
    return plan


def plan_skip(hub: Hub, name: str, position: str, reason: str) -> ChangePlan:
    """Return the plan of `skip`. Raise `InvalidValue` if the reason is empty."""
    check_reason(reason)
    where = Position.parse(position)
    if not group_seek.plan_skip(hub.backend, name, where):
        summary = f"{name}: {position} is already acknowledged: nothing to do"
        return ChangePlan(name, False, summary)
    partition = str(Partition(*where[:3]))
    partitions = show_group(hub.backend, name).partitions
    owner = next((each.owner for each in partitions if each.partition == partition), None)
    facts = [Fact("undo", f"a seek to {position}, which redelivers it and every later message")]
    if owner is not None:
        again = f"{owner} is granted {partition} again; its messages in flight are redelivered"
        facts.insert(0, Fact("owner", again))
    summary = f"{name}: skip {position}: acknowledge it without delivering it"
    return ChangePlan(name, True, summary, tuple(facts))


def skip(hub: Hub, name: str, position: str, reason: str) -> ChangePlan:
    """Skip one message of a group. Return the plan that was applied.

    A message that is acknowledged by then is left alone, and no audit entry is written.
    """
    plan = plan_skip(hub, name, position, reason)
    if hub.group(name).skip(position, reason=reason):
        after = {"acknowledged": position, "done": f"skipped {position}"}
        append_audit(hub, audit_entry("group skip", name, after=after, reason=reason))
    return plan


def plan_delete(hub: Hub, name: str) -> ChangePlan:
    """Return the plan of `delete`."""
    group = show_group(hub.backend, name).summary
    facts = [
        Fact("lag", f"{format_amount(group.lag, 'message')} not acknowledged"),
        Fact("undo", "none; a new group of that name starts without progress"),
    ]
    if letters := count_group_letters(hub, name):
        facts.insert(1, Fact("kept", format_amount(letters, "pending dead letter")))
    if group.consumers:
        stopped = f"{format_amount(group.consumers, 'running consumer')}, with an error"
        facts.insert(0, Fact("stops", stopped))
    summary = f"{name}: delete the group and its progress in {group.filter}"
    return ChangePlan(name, True, summary, tuple(facts))


def delete(hub: Hub, name: str, reason: str = "") -> ChangePlan:
    """Delete a group. Return the plan that was applied."""
    plan = plan_delete(hub, name)
    before = {"filter": read_group(hub.backend, name).definition.filter, **_marks(hub, name)}
    delete_group(hub.backend, name)
    after = {"done": "deleted"}
    append_audit(hub, audit_entry("group delete", name, before=before, after=after, reason=reason))
    return plan


def _marks(hub: Hub, name: str) -> dict[str, int]:
    return {each.partition: each.mark for each in show_group(hub.backend, name).partitions}


def _seek_plan(hub: Hub, name: str, to: str, targets: Mapping[Partition, int]) -> ChangePlan:
    """Return the plan of a seek to an offset in each partition.

    A partition at its target moves too if offsets above the target are acknowledged.
    """
    moved: list[PartitionSeek] = []
    redelivered = skipped = 0
    for where, offset in targets.items():
        progress = Progress.load(hub.backend.table, consumer_name(name), where)
        if (progress.mark, progress.highest + 1) != (offset, offset):
            moved.append(PartitionSeek(str(where), progress.mark, offset))
            redelivered += _acknowledged(progress, offset)
            skipped += sum(end - start for start, end in progress.holes(offset))
    if not moved:
        return ChangePlan(name, False, f"{name} is already at {to}: nothing to do")
    facts = [
        Fact(each.partition, f"{each.before:,} -> {each.after:,}") for each in moved[:SHOWN_MAX]
    ]
    if len(moved) > SHOWN_MAX:
        facts.append(Fact("...", f"and {format_amount(len(moved) - SHOWN_MAX, 'more partition')}"))
    if redelivered:
        again = f"up to {format_amount(redelivered, 'message')} delivered before"
        facts.append(Fact("redelivered", again))
    if skipped:
        never = f"up to {format_amount(skipped, 'message')} not delivered yet"
        facts.append(Fact("skipped", never))
    total = format_amount(len(targets), "partition")
    summary = f"{name}: seek to {to}: moves {len(moved):,} of {total}"
    return ChangePlan(name, True, summary, tuple(facts), tuple(moved))


def _acknowledged(progress: Progress, offset: int) -> int:
    """Return the number of acknowledged offsets at `offset` and above."""
    ranges = [(0, progress.mark), *progress.ranges()]
    return sum(max(0, end - max(start, offset)) for start, end in ranges)
