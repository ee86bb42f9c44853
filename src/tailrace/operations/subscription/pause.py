"""Pausing and continuing a subscription, or the one of a queue. Every change is audited."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.subscription.health import resume_verb
from tailrace.subscription.store.pause import find_pause


@dataclass(frozen=True, slots=True)
class PauseReport:
    """A pause that an operator began or ended: why, by whom and since when there is or was one.

    `kind` is ``subscription`` or ``queue``. `changed` is False if there was nothing to do. `quiet`
    is True if nothing is in flight, False if something was after the timeout, and None if that was
    not awaited. The other fields are None if there was no pause.
    """

    name: str
    kind: str
    changed: bool
    quiet: bool | None = None
    reason: str | None = None
    by: str | None = None
    since: datetime | None = None

    @property
    def resume_command(self) -> str:
        """The command that ends the pause."""
        return f"tailrace {resume_verb(self.kind)} {self.name}"


def pause(hub: Hub, name: str, reason: str) -> PauseReport:
    """Pause a subscription or queue: its workers finish their calls and begin no more."""
    changed = hub.subscription(name).pause(reason)
    report = read_pause(hub, name, changed=changed)
    if changed:
        after = {"done": "paused"}
        entry = audit_entry(f"{report.kind} pause", name, after=after, reason=reason)
        append_audit(hub, entry)
    return report


def resume(hub: Hub, name: str, reason: str = "") -> PauseReport:
    """Let the workers of a paused subscription or queue continue. The report has the pause that
    ended."""
    report = read_pause(hub, name, changed=True)
    if not hub.subscription(name).resume():
        return PauseReport(name, report.kind, changed=False)
    before, after = {"paused": report.reason}, {"done": "continued"}
    command = resume_verb(report.kind)
    append_audit(hub, audit_entry(command, name, before=before, after=after, reason=reason))
    return report


def read_pause(hub: Hub, name: str, *, changed: bool = False) -> PauseReport:
    """Return the pause of a subscription or queue. Raise `UnknownSubscription` if there is none of
    that name."""
    kind = "queue" if hub.subscription(name).definition.queue else "subscription"
    found = find_pause(hub.backend, name)
    if found is None:
        return PauseReport(name, kind, changed)
    since = utc_time(found.since_ms)
    return PauseReport(name, kind, changed, None, found.reason, found.by, since)
