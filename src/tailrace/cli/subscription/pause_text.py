"""The texts of a pause, of a subscription and of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.terminal.tables import format_time

if TYPE_CHECKING:
    from tailrace.operations.subscription.pause import PauseReport


def paused_text(report: PauseReport) -> str:
    """Return that something is paused, and the command that ends the pause."""
    text = f"{report.name}: paused"
    if not report.changed:
        text = f"{report.name} is already paused: {_pause_text(report)}"
    if report.quiet is not None:
        text += ", nothing is in flight" if report.quiet else ", calls are still in flight"
    return f"{text}; to continue: {report.resume_command}"


def interrupted_text(report: PauseReport) -> str:
    """Return that nobody waits any more for the calls of something that stays paused."""
    return (
        f"{report.name} stays paused, and calls may still be in flight;"
        f" to continue: {report.resume_command}"
    )


def resumed_text(report: PauseReport) -> str:
    """Return that a pause has ended."""
    if not report.changed:
        return f"{report.name} is not paused: nothing to do"
    return f"{report.name}: continues; it was paused: {_pause_text(report)}"


def _pause_text(report: PauseReport) -> str:
    since = "" if report.since is None else f" since {format_time(report.since)}"
    return f"{report.reason}, by {report.by}{since}"
