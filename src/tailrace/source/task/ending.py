"""Whether all tasks have read everything, by their states and the table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.source.task.actions import TaskView
from tailrace.source.unit_status import UnitStatus


def is_quiet(views: Mapping[str, TaskView]) -> bool:
    """True if no task reads, and no unit moves."""
    return not any(
        view.share or UnitStatus.READING in view.data.values() for view in views.values()
    )


def is_read(views: Mapping[str, TaskView], startable: Iterable[str]) -> bool:
    """True if tasks have read all these units within their `Until`."""
    status = {unit: each for view in views.values() for unit, each in view.data.items()}
    return all(status.get(unit) is UnitStatus.READ for unit in startable)
