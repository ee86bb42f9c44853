"""Which unit should move to which task. Pure: tasks with the same views make the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.group.protocol.leader.planner import plan
from tailrace.source.task.actions import TaskView


def placed(
    units: Iterable[str], views: Mapping[str, TaskView], members: Iterable[str]
) -> dict[str, str]:
    """Return the task for each of these units, which nobody owns."""
    owners = _owners(views)
    loads = dict.fromkeys((*owners, *units), 1)
    return dict(plan(loads, members, owners).granted)


def surplus(task: str, views: Mapping[str, TaskView]) -> dict[str, str]:
    """Return the units that a task owns and should give away, each with its next owner.

    None while the numbers of units that are left to read differ by at most one.
    """
    if _lead(task, views) < 2:
        return {}
    owners = _owners(views)
    counts = dict.fromkeys(views, 0)
    for owner in owners.values():
        if owner in counts:
            counts[owner] += 1
    if counts[task] - min(counts.values()) < 2:
        return {}
    loads = dict.fromkeys(owners, 1)
    revoked = frozenset(plan(loads, views, owners).revoked)
    kept = {unit: owner for unit, owner in owners.items() if unit not in revoked}
    targets = dict(plan(loads, views, kept).granted)
    return {unit: targets[unit] for unit in sorted(revoked) if owners[unit] == task}


def _lead(task: str, views: Mapping[str, TaskView]) -> int:
    """Return how many units more a task has than the one with fewest. Quickly: a unit that two
    tasks list, for a moment, counts twice."""
    counts = {name: view.load for name, view in views.items()}
    for view in views.values():
        for unit, target in view.share.items():
            if target in counts and unit not in views[target].data:
                counts[target] += 1
    return counts[task] - min(counts.values())


def _owners(views: Mapping[str, TaskView]) -> dict[str, str]:
    """Return the owner of each unit that is left to read: for a shared one, who is to take it."""
    found = {
        unit: task
        for task, view in views.items()
        for unit, status in view.data.items()
        if status.is_load
    }
    for view in views.values():
        for unit, target in view.share.items():
            found.setdefault(unit, target)
    return found
