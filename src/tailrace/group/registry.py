"""All of a process's part in its groups: whom its sessions follow, and what it leads itself.

For every group of which the process has borrowers the registry finds the leader, and makes its own
process the leader when there is none, when the leader's process is proven dead, or when that has
given no sign of life for a lease.
"""

from __future__ import annotations

from typing import Final

from tailrace.group import reasons
from tailrace.group.actions import Action, Beat, Elect, Look, Probe, Record, Resign, Send
from tailrace.group.borrowing import Borrowing
from tailrace.group.events import (
    Beaten,
    Died,
    Drained,
    Elected,
    Event,
    Gone,
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    LeaderFound,
    Lost,
    Progressed,
    Received,
    Stalled,
    Subscribed,
    Tick,
    UnitsRead,
    Unsubscribed,
)
from tailrace.group.leader import Leader
from tailrace.group.leader_events import LeaderEvent
from tailrace.group.leading import Leading
from tailrace.group.messages import (
    Disconnect,
    LeaderWanted,
    Message,
    Ping,
    PingResponse,
    RevokeFinished,
    Roster,
    UpdateProgress,
)
from tailrace.group.pulse import Pulse
from tailrace.group.times import Resend, Times
from tailrace.group.unit import LeaderEntry

_NEVER: Final = float("-inf")


class _Followed:
    """A group of which this process has sessions, or which it leads."""

    __slots__ = ("ask", "elected_by", "entry")

    def __init__(self, ask: Resend) -> None:
        self.elected_by = _NEVER
        """Up to when the answer to an election of this process is waited for."""
        self.ask: Resend | None = ask
        """When to look again who leads; None while somebody does."""
        self.entry: LeaderEntry | None = None


class Registry:
    """The machine of a process. See `tailrace.machine.Machine`.

    `process` names it as no other process, before or after it, is named.
    """

    def __init__(self, process: str, times: Times | None = None) -> None:
        self.process = process
        self.times = times or Times()
        self._followed: dict[str, _Followed] = {}
        self._leading = Leading(process, self.times)
        self._borrowing = Borrowing(process, self.times)
        self._pulses: dict[str, Pulse] = {}
        self._cleared_after = 0
        """So many sessions had gone when all that was for them had been cleared away."""
        self._beat_at = _NEVER
        self._probe_at = _NEVER
        self._told_at = _NEVER
        """The time of the last event."""

    @property
    def leads(self) -> list[str]:
        """The groups that it leads."""
        return self._leading.groups()

    def leader(self, group: str) -> Leader | None:
        """The leader of a group, if it is here."""
        return self._leading.leader(group)

    def until(self, session: str) -> float:
        """Up to when a session may hand out what it owns, by the monotonic clock of this process.

        May be asked from any thread, and before each thing that is handed out.
        """
        borrower = self._borrowing.current(session)
        entry = None if borrower is None else borrower.taken_in_by
        if borrower is None or entry is None:
            return _NEVER
        pulse = self._pulses.get(entry.process)
        if pulse is None:
            return borrower.connect_until
        by_pulse = pulse.until(borrower.group, entry.term, borrower.roster_version)
        return max(borrower.connect_until, by_pulse)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in an event."""
        self._told_at = max(self._told_at, now)
        match event:
            case Received(sender, message):
                return self._received(sender, message, now)
            case Subscribed():
                return self._subscribe(event, now)
            case Unsubscribed() | Died() | Progressed() | Drained() | Lost():
                return self._borrowing.tell(event.session, event, now)
            case LeaderFound(group, entry):
                return self._found(group, entry, now)
            case Elected():
                return self._elected(event, now)
            case UnitsRead() | GrantsCommitted() | GrantsRefused() | GrantsUnknown() | GrantsRead():
                return self._to_leader(event.group, event, now)
            case Gone(process):
                self._leading.outlived(process, now)
                lost = self._leading.lost(process, reasons.DIED, now)
                return lost + self._take_over(process, now)
            case Stalled(process, looked_at):
                self._leading.outlived(process, looked_at)
                return self._take_over(process, now)
            case Beaten():
                for group in self._leading.beaten(event, now):
                    self._followed[group].ask = Resend(self.times, now)
                return []
            case Tick():
                return self._tick(now)

    def deadline(self) -> float | None:
        """When something is to be done, said again or given up."""
        moments = [followed.ask.at for followed in self._followed.values() if followed.ask]
        moments += [pulse.ping_at for pulse in self._pulses.values()]
        if self._followed:
            moments += [self._probe_at, self._beat_at]
        leading_at = self._leading.deadline(self._told_at)
        if leading_at is not None:
            moments.append(leading_at)
        borrowing_at = self._borrowing.deadline()
        if borrowing_at is not None:
            moments.append(borrowing_at)
        return min(moments, default=None)

    def validate(self) -> None:
        """Every invariant of everything in it."""
        self._leading.validate()
        for group in self._leading.groups():
            assert group in self._followed, f"{group} is led and not followed"
        for group in self._borrowing.groups():
            assert group in self._followed, f"{group} is not followed"
        self._borrowing.validate()

    def _subscribe(self, event: Subscribed, now: float) -> list[Action]:
        followed = self._followed.setdefault(event.group, _Followed(Resend(self.times, now)))
        if followed.entry is not None:
            self._pulse(followed.entry.process, now)
        return self._borrowing.subscribe(event, followed.entry, now)

    # Who leads.

    def _found(self, group: str, entry: LeaderEntry | None, now: float) -> list[Action]:
        followed = self._followed.get(group)
        if followed is None:
            return []
        if entry is None:
            self._leading.end(group)
            followed.entry = None
            return self._elect(group, 0, now) if self._borrowing.shares(group) else []
        if followed.entry is not None and entry.term < followed.entry.term:
            return []
        leader = self._leading.leader(group)
        if leader is not None and leader.term != entry.term:
            self._leading.end(group)
        if entry.process == self.process and group not in self._leading:
            return [] if now < followed.elected_by else self._elect(group, entry.term, now)
        followed.ask = None
        return self._follow(group, entry, now)

    def _follow(self, group: str, entry: LeaderEntry, now: float) -> list[Action]:
        followed = self._followed[group]
        if followed.entry == entry:
            return []
        followed.entry = entry
        if self._borrowing.shares(group):
            self._pulse(entry.process, now)
        return self._borrowing.follow(group, entry, now)

    def _pulse(self, process: str, now: float) -> None:
        self._pulses.setdefault(process, Pulse(self.times, now))

    def _elect(self, group: str, version: int, now: float) -> list[Action]:
        followed = self._followed[group]
        followed.elected_by = now + self.times.ping_s
        followed.ask = Resend(self.times, followed.elected_by)
        return [Elect(group, version)]

    def _elected(self, event: Elected, now: float) -> list[Action]:
        followed = self._followed.get(event.group)
        if followed is None:
            return [Resign(event.group, event.term)]
        before = followed.entry
        if before is not None and event.term <= before.term:
            return []
        other = before is not None and before.process != self.process
        self._leading.begin(event, before.process if before is not None and other else None, now)
        followed.ask = None
        self._beat_at = now
        record = Record(event.group, "term", epoch=event.term)
        return [record, *self._follow(event.group, LeaderEntry(self.process, event.term), now)]

    def _take_over(self, process: str, now: float) -> list[Action]:
        """Elect this process for all groups that one which no longer acts leads by the store."""
        actions: list[Action] = []
        for group, followed in self._followed.items():
            entry = followed.entry
            if entry is not None and entry.process == process and followed.ask is None:
                actions += self._elect(group, entry.term, now)
        return actions

    def _to_leader(self, group: str, event: LeaderEvent, now: float) -> list[Action]:
        led = group in self._leading
        actions = self._leading.handle(group, event, now)
        if led and group not in self._leading:
            self._followed[group].ask = Resend(self.times, now)
        return actions

    # Messages and time.

    def _received(self, sender: str, message: Message, now: float) -> list[Action]:
        match message:
            case Ping():
                return self._leading.pinged(sender, message, now)
            case PingResponse():
                return self._answered(sender, message)
            case Roster():
                self._leading.roster(sender, message, now)
                return []
            case LeaderWanted() | UpdateProgress() | RevokeFinished() | Disconnect():
                return self._leading.heard(sender, message, now)
            case _:
                return self._borrowing.heard(sender, message, now)

    def _answered(self, sender: str, response: PingResponse) -> list[Action]:
        pulse = self._pulses.get(sender)
        if pulse is None:
            return []
        pulse.answered(response)
        if response.roster_version >= self._borrowing.roster_version:
            return []
        return [Send(sender, self._borrowing.roster(sender))]

    def _tick(self, now: float) -> list[Action]:
        actions = self._borrowing.tick(now)
        for group, followed in self._followed.items():
            if followed.ask is not None and followed.ask.due(now):
                actions.append(Look(group))
        for process, pulse in self._pulses.items():
            if now >= pulse.ping_at:
                actions.append(Send(process, pulse.ping(self._borrowing.roster_version, now)))
        if self._followed and now >= self._beat_at:
            self._beat_at = now + self.times.ping_s
            actions.append(Beat(now))
        actions += self._leading.tick(now)
        if now >= self._probe_at or self._borrowing.departures != self._cleared_after:
            actions += self._let_go()
        if now >= self._probe_at:
            self._probe_at = now + self.times.probe_s
            actions += [Probe(process) for process in sorted(self._watched())]
        return actions

    def _let_go(self) -> list[Action]:
        """Resign where nothing is left to lead from here, and forget what is not needed."""
        used = self._borrowing.groups()
        actions = self._leading.resign(used)
        if used.issuperset(self._leading.groups()):
            self._cleared_after = self._borrowing.departures
        for group in self._followed.keys() - used - set(self._leading.groups()):
            del self._followed[group]
        for process in self._pulses.keys() - self._borrowing.leaders():
            del self._pulses[process]
        return actions

    def _watched(self) -> set[str]:
        """The processes whose death matters here."""
        followed = {f.entry.process for f in self._followed.values() if f.entry is not None}
        return (followed | self._leading.watched()) - {self.process}
