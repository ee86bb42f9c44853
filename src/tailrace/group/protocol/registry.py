"""The protocol machine of a process: its borrowers in all groups, and the groups that it leads.

For every group of its sessions the registry finds the leader. It elects its own process if there is
no leader, if the leader's process is dead, or if that process has sent no heartbeat for a lease.
"""

from __future__ import annotations

from typing import Final

from tailrace.group.protocol.actions import (
    Action,
    Beat,
    Elect,
    FindLeader,
    Probe,
    Resign,
    Send,
    WriteHistory,
)
from tailrace.group.protocol.borrower.agents import Agents
from tailrace.group.protocol.events import (
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
from tailrace.group.protocol.heartbeat import Heartbeat
from tailrace.group.protocol.leader import reasons
from tailrace.group.protocol.leader.events import LeaderEvent
from tailrace.group.protocol.leader.leader import Leader
from tailrace.group.protocol.leader.leaders import Leaders
from tailrace.group.protocol.messages import (
    Disconnect,
    LeaderWanted,
    Message,
    Ping,
    PingResponse,
    RevokeFinished,
    Roster,
    UpdateProgress,
)
from tailrace.group.protocol.times import Resend, Times
from tailrace.group.protocol.unit import LeaderEntry

_NEVER: Final = float("-inf")


class _Followed:
    """A group of which this process has sessions, or that it leads."""

    __slots__ = ("elected_by", "entry", "find")

    def __init__(self, find: Resend) -> None:
        self.elected_by = _NEVER
        """The time up to which the answer to an election is awaited."""
        self.find: Resend | None = find
        """When to read the leader again; None while there is a leader."""
        self.entry: LeaderEntry | None = None


class Registry:
    """The machine of one process. See `tailrace.machine.Machine`.

    `process` is a name that no other process ever has.
    """

    def __init__(self, process: str, times: Times | None = None) -> None:
        self.process = process
        self.times = times or Times()
        self._followed: dict[str, _Followed] = {}
        self._leaders = Leaders(process, self.times)
        self._agents = Agents(process, self.times)
        self._heartbeats: dict[str, Heartbeat] = {}
        self._cleared_after = 0
        """The number of departures after which nothing was left to resign from."""
        self._beat_at = _NEVER
        self._probe_at = _NEVER
        self._last_event_at = _NEVER
        """The time of the last event."""

    @property
    def leads(self) -> list[str]:
        """The groups that this process leads."""
        return self._leaders.groups()

    def leader(self, group: str) -> Leader | None:
        """Return the leader of a group, if this process leads it."""
        return self._leaders.leader(group)

    def until(self, session: str) -> float:
        """Return the time up to which a session may deliver, by this process's monotonic clock.

        Any thread; called before each delivery.
        """
        borrower = self._agents.current(session)
        entry = None if borrower is None else borrower.connected_to
        if borrower is None or entry is None:
            return _NEVER
        heartbeat = self._heartbeats.get(entry.process)
        if heartbeat is None:
            return borrower.connect_until
        by_heartbeat = heartbeat.until(borrower.group, entry.term, borrower.roster_version)
        return max(borrower.connect_until, by_heartbeat)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Handle an event."""
        self._last_event_at = max(self._last_event_at, now)
        match event:
            case Received(sender, message):
                return self._received(sender, message, now)
            case Subscribed():
                return self._subscribe(event, now)
            case Unsubscribed() | Died() | Progressed() | Drained() | Lost():
                return self._agents.handle(event.session, event, now)
            case LeaderFound(group, entry, removed_at):
                if entry is None:
                    return self._found_none(group, removed_at, now)
                return self._found(group, entry, now)
            case Elected():
                return self._elected(event, now)
            case UnitsRead() | GrantsCommitted() | GrantsRefused() | GrantsUnknown() | GrantsRead():
                return self._to_leader(event.group, event, now)
            case Gone(process):
                self._leaders.predecessor_ended(process, now)
                lost = self._leaders.lost(process, reasons.PROCESS_DIED, now)
                return lost + self._take_over(process, now)
            case Stalled(process, probed_at):
                self._leaders.predecessor_ended(process, probed_at)
                return self._take_over(process, now)
            case Beaten():
                for group in self._leaders.beaten(event, now):
                    self._followed[group].find = Resend(self.times, now)
                return []
            case Tick():
                return self._tick(now)

    def deadline(self) -> float | None:
        """Return the time of the next message, read, heartbeat or timeout."""
        times = [followed.find.at for followed in self._followed.values() if followed.find]
        times += [heartbeat.ping_at for heartbeat in self._heartbeats.values()]
        if self._followed:
            times += [self._probe_at, self._beat_at]
        leaders_at = self._leaders.deadline(self._last_event_at)
        if leaders_at is not None:
            times.append(leaders_at)
        agents_at = self._agents.deadline()
        if agents_at is not None:
            times.append(agents_at)
        return min(times, default=None)

    def validate(self) -> None:
        """Check every invariant of the registry and of its parts."""
        self._leaders.validate()
        for group in self._leaders.groups():
            assert group in self._followed, f"{group} is led and not followed"
        for group in self._agents.groups():
            assert group in self._followed, f"{group} is not followed"
        self._agents.validate()

    def _subscribe(self, event: Subscribed, now: float) -> list[Action]:
        followed = self._followed.setdefault(event.group, _Followed(Resend(self.times, now)))
        if followed.entry is not None:
            self._heartbeat(followed.entry.process, now)
        elif followed.find is None:  # the leader left while the group had no session here
            followed.find = Resend(self.times, now)
        return self._agents.subscribe(event, followed.entry, now)

    # Leaders.

    def _found_none(self, group: str, removed_at: int | None, now: float) -> list[Action]:
        followed = self._followed.get(group)
        if followed is None:
            return []
        # The removal of an earlier leader may be reported after the election of this process.
        if removed_at is not None and followed.entry and removed_at < followed.entry.term:
            return []
        self._leaders.end(group)
        followed.entry = None
        return self._elect(group, 0, now) if self._agents.has_session(group) else []

    def _found(self, group: str, entry: LeaderEntry, now: float) -> list[Action]:
        followed = self._followed.get(group)
        if followed is None:
            return []
        if followed.entry is not None and entry.term < followed.entry.term:
            return []
        leader = self._leaders.leader(group)
        if leader is not None and leader.term != entry.term:
            self._leaders.end(group)
        if entry.process == self.process and group not in self._leaders:
            if now >= followed.elected_by:
                return self._elect(group, entry.term, now)
            if followed.find is None:  # the answer to this election may have been lost
                followed.find = Resend(self.times, followed.elected_by)
            return []
        followed.find = None
        return self._follow(group, entry, now)

    def _follow(self, group: str, entry: LeaderEntry, now: float) -> list[Action]:
        followed = self._followed[group]
        if followed.entry == entry:
            return []
        followed.entry = entry
        if self._agents.has_session(group):
            self._heartbeat(entry.process, now)
        return self._agents.follow(group, entry, now)

    def _heartbeat(self, process: str, now: float) -> None:
        self._heartbeats.setdefault(process, Heartbeat(self.times, now))

    def _elect(self, group: str, version: int, now: float) -> list[Action]:
        followed = self._followed[group]
        followed.elected_by = now + self.times.ping_s
        followed.find = Resend(self.times, followed.elected_by)
        return [Elect(group, version)]

    def _elected(self, event: Elected, now: float) -> list[Action]:
        followed = self._followed.get(event.group)
        if followed is None:
            return [Resign(event.group, event.term)]
        before = followed.entry
        if before is not None and event.term <= before.term:
            return []
        other = before is not None and before.process != self.process
        self._leaders.begin(event, before.process if before is not None and other else None, now)
        followed.find = None
        self._beat_at = now
        record = WriteHistory(event.group, "term", epoch=event.term)
        return [record, *self._follow(event.group, LeaderEntry(self.process, event.term), now)]

    def _take_over(self, process: str, now: float) -> list[Action]:
        """Elect this process in all groups that a dead or stalled process leads by the store."""
        actions: list[Action] = []
        for group, followed in self._followed.items():
            entry = followed.entry
            if entry is not None and entry.process == process and followed.find is None:
                actions += self._elect(group, entry.term, now)
        return actions

    def _to_leader(self, group: str, event: LeaderEvent, now: float) -> list[Action]:
        led = group in self._leaders
        actions = self._leaders.handle(group, event, now)
        if led and group not in self._leaders:
            self._followed[group].find = Resend(self.times, now)
        return actions

    # Messages and time.

    def _received(self, sender: str, message: Message, now: float) -> list[Action]:
        match message:
            case Ping():
                return self._leaders.pinged(sender, message, now)
            case PingResponse():
                return self._answered(sender, message)
            case Roster():
                self._leaders.roster(sender, message, now)
                return []
            case LeaderWanted() | UpdateProgress() | RevokeFinished() | Disconnect():
                return self._leaders.received(sender, message, now)
            case _:
                return self._agents.received(sender, message, now)

    def _answered(self, sender: str, response: PingResponse) -> list[Action]:
        heartbeat = self._heartbeats.get(sender)
        if heartbeat is None:
            return []
        heartbeat.answered(response)
        if response.roster_version >= self._agents.roster_version:
            return []
        return [Send(sender, self._agents.roster(sender))]

    def _tick(self, now: float) -> list[Action]:
        actions = self._agents.tick(now)
        for group, followed in self._followed.items():
            if followed.find is not None and followed.find.due(now):
                actions.append(FindLeader(group))
        for process, heartbeat in self._heartbeats.items():
            if now >= heartbeat.ping_at:
                actions.append(Send(process, heartbeat.ping(self._agents.roster_version, now)))
        if self._followed and now >= self._beat_at:
            self._beat_at = now + self.times.ping_s
            actions.append(Beat(now))
        actions += self._leaders.tick(now)
        if now >= self._probe_at or self._agents.departures != self._cleared_after:
            actions += self._resign_unused()
        if now >= self._probe_at:
            self._probe_at = now + self.times.probe_s
            actions += [Probe(process) for process in sorted(self._watched())]
        return actions

    def _resign_unused(self) -> list[Action]:
        """Resign from groups without a session here, and forget unused groups and processes."""
        used = self._agents.groups()
        actions = self._leaders.resign(used)
        if used.issuperset(self._leaders.groups()):
            self._cleared_after = self._agents.departures
        for group in self._followed.keys() - used - set(self._leaders.groups()):
            del self._followed[group]
        for process in self._heartbeats.keys() - self._agents.leaders():
            del self._heartbeats[process]
        return actions

    def _watched(self) -> set[str]:
        """Return the processes that must be probed."""
        followed = {f.entry.process for f in self._followed.values() if f.entry is not None}
        return (followed | self._leaders.watched()) - {self.process}
