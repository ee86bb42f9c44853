"""What keeps a group from going on though consumers have its streams, in words."""

from __future__ import annotations

from tailrace.amount import format_amount
from tailrace.group.failed import FailedMessage
from tailrace.group.unit import UnitState
from tailrace.group.view import GroupConsumer, GroupDetail, GroupStream
from tailrace.hub import Hub


def name_failed(failed: FailedMessage) -> str:
    """The message: ``orders/0.0@2 (key 'k5')``."""
    return failed.position if failed.key is None else f"{failed.position} (key {failed.key!r})"


def tell_failed(failed: FailedMessage) -> str:
    """What became of it, and what that means for others."""
    held = "it is not handed out any more"
    if failed.key is not None:
        held = "nothing more of its key is handed out"
    times = format_amount(failed.attempts, "time")
    return f"{name_failed(failed)} was given back {times}, {held}"


def skip_command(group: str, failed: FailedMessage) -> str:
    """The command that passes over it."""
    return f"tailrace group skip {group} {failed.position} --reason TEXT"


def silent_owner(hub: Hub, group: GroupDetail, stream: GroupStream) -> GroupConsumer | None:
    """Who has a stream that is not finished, and gave no sign of life for more than a lease."""
    if stream.state is UnitState.FINISHED:
        return None
    lease_s = hub.settings.lease.total_seconds()
    owners = (each for each in group.consumers if each.id == stream.owner)
    return next((each for each in owners if each.silent_s > lease_s), None)
