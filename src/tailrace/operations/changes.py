"""Changes of a topic that cannot be undone, each as a plan to look at and as the deed."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.amount import format_amount
from tailrace.hub import Hub
from tailrace.operations.holdings import Held
from tailrace.operations.topics import find_topic, held_by_topic
from tailrace.topic.scaling import Plan


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change would do, in words. Without `changes` there is nothing to do."""

    topic: str
    changes: bool
    lines: tuple[str, ...]


def plan_scale(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """What `scale` would do."""
    return _of(find_topic(hub, name).plan_scale(partitions, any_count=any_count))


def scale(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """Let the topic go on with that many partitions; the plan that was followed."""
    return _of(find_topic(hub, name).scale(partitions, any_count=any_count))


def plan_add_storage(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """What `add_storage` would do."""
    topic = find_topic(hub, name)
    now = topic.view.definition
    after = now.added(partitions, any_count=any_count)
    shape = after.storage[-1]
    lines = (
        f"{name}: storage {after.last} is appended, with {format_amount(partitions, 'partition')} "
        f"(base {shape.base}, K {shape.k})",
        f"  pushes  still go to storage {now.pointer}, until: tailrace topic switch {name}",
        "  undo    none; a storage topic is never removed from the list",
    )
    return ChangePlan(name, True, lines)


def add_storage(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """Append a storage topic that takes no pushes yet; the plan that was followed."""
    plan = plan_add_storage(hub, name, partitions, any_count=any_count)
    find_topic(hub, name).add_storage_topic(partitions, any_count=any_count)
    return plan


def plan_switch(hub: Hub, name: str) -> ChangePlan:
    """What `switch` would do; nothing at the last storage topic."""
    now = find_topic(hub, name).view.definition
    if now.pointer == now.last:
        line = (
            f"{name}: storage {now.pointer} is the last, nothing to switch to; "
            f"add one: tailrace topic add-storage {name} {now.shape.partitions}"
        )
        return ChangePlan(name, False, (line,))
    to = now.pointer + 1
    before, after = now.shape.partitions, now.storage[to].partitions
    lines = (
        f"{name}: pushes move from storage {now.pointer} ({format_amount(before, 'partition')}) "
        f"to storage {to} ({format_amount(after, 'partition')})",
        f"  sealed  storage {now.pointer}, for ever; consumers read it to its end first",
        "  undo    none",
    )
    return ChangePlan(name, True, lines)


def switch(hub: Hub, name: str) -> ChangePlan:
    """Let the next storage topic take the pushes; the plan that was followed."""
    plan = plan_switch(hub, name)
    find_topic(hub, name).switch_produce()
    return plan


def plan_delete(hub: Hub, name: str) -> ChangePlan:
    """What `delete` would do."""
    topic = find_topic(hub, name)
    held: Held = held_by_topic(hub, topic)
    shapes = topic.view.definition.storage
    partitions = sum(shape.partitions for shape in shapes)
    lines = (
        f"{name}: deleted for ever, with {format_amount(held.messages, 'message')} "
        f"({format_amount(held.bytes, 'byte')}) in {format_amount(partitions, 'partition')}",
        "  undo    none",
    )
    return ChangePlan(name, True, lines)


def delete(hub: Hub, name: str) -> ChangePlan:
    """Delete the topic with all its records; the plan that was followed."""
    plan = plan_delete(hub, name)
    hub.delete_topic(name)
    return plan


def _of(plan: Plan) -> ChangePlan:
    return ChangePlan(plan.topic, plan.after != plan.before, plan.lines)
