"""`tailrace source`: changes of a source by an operator. Every change is audited."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tailrace.cli.arguments import optional_reason, source_argument
from tailrace.cli.command import verb
from tailrace.cli.terminal.confirm import PlannedChange, planned

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub


@verb(
    "forget",
    examples="""
    tailrace source forget shop --dry-run
    tailrace source forget shop --yes
    """,
)
@source_argument
@optional_reason
@planned
def forget(hub: Hub, source: str, reason: str) -> PlannedChange:
    """Remove a source and its positions.

    Its tasks must be stopped. The commit log and the dead letters stay. A source of this name that
    runs later reads everything again.
    """
    from tailrace.operations.source import forget as operation

    plan = operation.plan_forget(hub, source)
    return PlannedChange(plan, partial(operation.forget, hub, source, reason))
