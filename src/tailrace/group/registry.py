"""All of a process's part in its groups: whom it follows, what it leads, and who lives.

For every group of which the process has borrowers the registry finds the leader, and makes its own
process the leader when there is none, when the leader's process is proven dead, or when that has
given no sign of life for a lease.

A leader acts only while its own lease lasts: that is extended by each beat, for the groups that the
process leads by a look at the store that came after the beat. Whoever takes over has seen no beat
for a lease. If a beat came between that look and the takeover, the leader before may have acted for
one lease more: so grants are left alone for a lease longer, until it is certain that it had not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tailrace.group.actions import (
    Action,
    Beat,
    Departed,
    Elect,
    Look,
    Probe,
    Record,
    Resign,
    Send,
)
from tailrace.group.agent import Agent, AgentEvent
from tailrace.group.borrower import Borrower, LeaderAt
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
from tailrace.group.leader import Heard, Leader, LeaderEvent, ProcessLost, RosterRead
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


@dataclass(slots=True)
class _Followed:
    """A group of which this process has borrowers, or which it leads."""

    ask: Resend | None
    """When to look again who leads; None while somebody does."""
    entry: LeaderEntry | None = None


@dataclass(slots=True)
class _Leading:
    """A group that this process leads. `predecessor` led it before, if that may still be alive."""

    leader: Leader
    elected_at: float
    acting_until: float
    predecessor: str | None


@dataclass(slots=True)
class _Peer:
    """A process that has borrowers of groups which are led here."""

    heard_at: float
    roster_version: int = 0


@dataclass(slots=True)
class Registry:
    """The machine of a process. See `tailrace.machine.Machine`.

    `process` names it as no other process, before or after it, is named.
    """

    process: str
    times: Times = field(default_factory=Times)
    _followed: dict[str, _Followed] = field(default_factory=dict)
    _leading: dict[str, _Leading] = field(default_factory=dict)
    _agents: dict[str, Agent] = field(default_factory=dict)
    _restless: set[str] = field(default_factory=set)
    """The sessions whose agents have a deadline."""
    _pulses: dict[str, Pulse] = field(default_factory=dict)
    _peers: dict[str, _Peer] = field(default_factory=dict)
    _roster_version: int = 0
    _borrowers_made: int = 0
    _beat_at: float = _NEVER
    _probe_at: float = _NEVER
    _told_at: float = _NEVER
    """The time of the last event."""

    @property
    def leads(self) -> list[str]:
        """The groups that it leads."""
        return list(self._leading)

    def leader(self, group: str) -> Leader | None:
        """The leader of a group, if it is here."""
        leading = self._leading.get(group)
        return None if leading is None else leading.leader

    def until(self, session: str) -> float:
        """Up to when a session may hand out what it owns, by the monotonic clock of this process.

        May be asked from any thread, and before each thing that is handed out.
        """
        agent = self._agents.get(session)
        borrower = None if agent is None else agent.current
        entry = None if borrower is None else borrower.taken_in_by
        if borrower is None or entry is None:
            return _NEVER
        pulse = self._pulses.get(entry.process)
        by_pulse = _NEVER if pulse is None else pulse.until(borrower.group, entry.term)
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
                return self._to_agent(event.session, event, now)
            case LeaderFound(group, entry):
                return self._found(group, entry, now)
            case Elected():
                return self._elected(event, now)
            case UnitsRead() | GrantsCommitted() | GrantsRefused() | GrantsUnknown() | GrantsRead():
                return self._to_leader(event.group, event, now)
            case Gone(process):
                return self._lost(process, "dead", now) + self._take_over(process, now)
            case Stalled(process):
                return self._stalled(process, now)
            case Beaten():
                return self._beaten(event, now)
            case Tick():
                return self._tick(now)

    def deadline(self) -> float | None:
        """When something is to be done, said again or given up."""
        moments = [followed.ask.at for followed in self._followed.values() if followed.ask]
        moments += [pulse.ping_at for pulse in self._pulses.values()]
        if self._leading:
            moments.append(self._beat_at)
        if self._leading or self._followed:
            moments.append(self._probe_at)
        acting = self._acting_leaders(self._told_at)
        if acting:
            moments += [peer.heard_at + self.times.free_s for peer in self._peers.values()]
        for leader in acting:
            at = leader.deadline()
            if at is not None:
                moments.append(at)
        for session in self._restless:
            at = self._agents[session].deadline()
            if at is not None:
                moments.append(at)
        return min(moments, default=None)

    def validate(self) -> None:
        """Every invariant of everything in it."""
        for group, leading in self._leading.items():
            assert not leading.leader.deposed, f"{group} is led by a leader that is deposed"
            leading.leader.validate()
        for agent in self._agents.values():
            agent.validate()
            assert agent.group in self._followed, f"{agent.group} is not followed"

    # Sessions and their borrowers.

    def _subscribe(self, event: Subscribed, now: float) -> list[Action]:
        agent = self._agents.get(event.session)
        if agent is None:
            agent = Agent(event.session, event.group, self._make_borrower)
            self._agents[event.session] = agent
        followed = self._followed.setdefault(event.group, _Followed(Resend(self.times, now)))
        actions: list[Action] = []
        if followed.entry is not None:
            actions += self._to_agent(event.session, LeaderAt(followed.entry), now)
        return actions + self._to_agent(event.session, event, now)

    def _make_borrower(self, subscribed: Subscribed) -> Borrower:
        self._borrowers_made += 1
        self._roster_version += 1
        return Borrower(
            name=f"{self.process}.{self._borrowers_made}",
            session=subscribed.session,
            group=subscribed.group,
            revoke_timeout_s=subscribed.revoke_timeout_s,
            roster_version=self._roster_version,
            times=self.times,
        )

    def _to_agent(self, session: str, event: AgentEvent, now: float) -> list[Action]:
        agent = self._agents.get(session)
        if agent is None:
            return [Departed(session)] if isinstance(event, Unsubscribed) else []
        before = len(list(agent))
        actions = agent.handle(event, now)
        left = list(agent)
        if len(left) != before:
            self._roster_version += 1
        self._restless.discard(session)
        if not left:
            del self._agents[session]
        elif agent.deadline() is not None:
            self._restless.add(session)
        return actions

    def _agents_of(self, group: str) -> list[Agent]:
        return [agent for agent in self._agents.values() if agent.group == group]

    def _borrowers(self) -> Iterator[Borrower]:
        for agent in self._agents.values():
            yield from agent

    # Who leads.

    def _found(self, group: str, entry: LeaderEntry | None, now: float) -> list[Action]:
        followed = self._followed.get(group)
        if followed is None:
            return []
        leading = self._leading.get(group)
        if entry is None:
            self._leading.pop(group, None)
            followed.entry = None
            return self._elect(group, 0, now) if self._agents_of(group) else []
        if followed.entry is not None and entry.term < followed.entry.term:
            return []
        if leading is not None and leading.leader.term != entry.term:
            del self._leading[group]
            leading = None
        if entry.process == self.process and leading is None:
            return self._elect(group, entry.term, now)
        followed.ask = None
        return self._follow(group, followed, entry, now)

    def _follow(
        self, group: str, followed: _Followed, entry: LeaderEntry, now: float
    ) -> list[Action]:
        if followed.entry == entry:
            return []
        followed.entry = entry
        self._roster_version += 1
        actions: list[Action] = []
        if entry.process not in self._pulses and self._agents_of(group):
            self._pulses[entry.process] = Pulse(self.times, now)
        for agent in self._agents_of(group):
            actions += self._to_agent(agent.session, LeaderAt(entry), now)
        return actions

    def _elect(self, group: str, version: int, now: float) -> list[Action]:
        followed = self._followed[group]
        followed.ask = Resend(self.times, now + self.times.ping_s)
        return [Elect(group, version, now)]

    def _elected(self, event: Elected, now: float) -> list[Action]:
        followed = self._followed.get(event.group)
        if followed is None:
            return [Resign(event.group, event.term)]
        before = followed.entry
        if before is not None and event.term <= before.term:
            return []
        predecessor = None if before is None or before.process == self.process else before.process
        times = self.times
        patience_s = times.free_s if predecessor is None else times.lease_s + times.free_s
        self._leading[event.group] = _Leading(
            Leader(event.group, event.term, times, event.grants, now + patience_s, now),
            elected_at=now,
            acting_until=event.sent_at + times.hold_s,
            predecessor=predecessor,
        )
        followed.ask = None
        record = Record(event.group, "term", borrower=self.process, epoch=event.term)
        entry = LeaderEntry(self.process, event.term)
        return [record, *self._follow(event.group, followed, entry, now)]

    def _take_over(self, process: str, now: float) -> list[Action]:
        """Elect this process for all groups that one which no longer acts leads by the store."""
        actions: list[Action] = []
        for group, followed in self._followed.items():
            entry = followed.entry
            if entry is not None and entry.process == process and followed.ask is None:
                actions += self._elect(group, entry.term, now)
        return actions

    def _stalled(self, process: str, now: float) -> list[Action]:
        self._outlived(process)
        return self._take_over(process, now)

    def _outlived(self, process: str) -> None:
        """A process has not acted since before this one was elected: one lease is enough."""
        for leading in self._leading.values():
            if leading.predecessor == process:
                leading.predecessor = None
                leading.leader.adopt_until = leading.elected_at + self.times.free_s

    # What this process leads.

    def _acting(self, group: str, now: float) -> Leader | None:
        leading = self._leading.get(group)
        return leading.leader if leading is not None and now < leading.acting_until else None

    def _acting_leaders(self, now: float) -> list[Leader]:
        return [one.leader for one in self._leading.values() if now < one.acting_until]

    def _to_leader(self, group: str, event: LeaderEvent, now: float) -> list[Action]:
        leading = self._leading.get(group)
        if leading is None:
            return []
        actions = leading.leader.handle(event, now)
        if leading.leader.deposed:
            del self._leading[group]
            self._followed[group].ask = Resend(self.times, now)
        return actions

    def _to_leaders(self, make: Callable[[Leader], LeaderEvent], now: float) -> list[Action]:
        actions: list[Action] = []
        for leader in self._acting_leaders(now):
            actions += self._to_leader(leader.group, make(leader), now)
        return actions

    def _lost(self, process: str, why: str, now: float) -> list[Action]:
        self._peers.pop(process, None)
        if why == "dead":
            self._outlived(process)
        return self._to_leaders(lambda _: ProcessLost(process, why), now)

    def _beaten(self, beaten: Beaten, now: float) -> list[Action]:
        led = dict(beaten.led)
        lapsed = False
        for group, leading in list(self._leading.items()):
            if led.get(group) == leading.leader.term:
                lapsed = lapsed or now >= leading.acting_until
                leading.acting_until = beaten.sent_at + self.times.hold_s
            elif beaten.sent_at >= leading.elected_at:
                del self._leading[group]
                self._followed[group].ask = Resend(self.times, now)
        if lapsed:
            # It was stopped, or cut off from the store: so it cannot judge who was silent.
            for peer in self._peers.values():
                peer.heard_at = now
        return []

    # Messages.

    def _received(self, sender: str, message: Message, now: float) -> list[Action]:
        match message:
            case Ping():
                return self._pinged(sender, message, now)
            case PingResponse():
                return self._answered(sender, message)
            case Roster():
                return self._take_roster(sender, message, now)
            case LeaderWanted() | UpdateProgress() | RevokeFinished() | Disconnect():
                if self._acting(message.group, now) is None:
                    return []
                self._peer(sender, now)
                return self._to_leader(message.group, Heard(sender, message), now)
            case _:
                actions: list[Action] = []
                for agent in self._agents_of(message.group):
                    actions += self._to_agent(agent.session, message, now)
                return actions

    def _peer(self, process: str, now: float) -> _Peer:
        peer = self._peers.setdefault(process, _Peer(now))
        peer.heard_at = max(peer.heard_at, now)
        return peer

    def _pinged(self, sender: str, ping: Ping, now: float) -> list[Action]:
        led = tuple(
            (leader.group, leader.term)
            for leader in self._acting_leaders(now)
            if leader.serves(sender)
        )
        known = self._peer(sender, now).roster_version if self._leading else 0
        return [Send(sender, PingResponse(ping.number, known, led))]

    def _answered(self, sender: str, response: PingResponse) -> list[Action]:
        pulse = self._pulses.get(sender)
        if pulse is None:
            return []
        pulse.answered(response)
        if response.roster_version >= self._roster_version:
            return []
        mine = [b for b in self._borrowers() if b.leader and b.leader.process == sender]
        return [
            Send(
                sender,
                Roster(
                    self._roster_version,
                    tuple((b.group, b.name) for b in mine if b.connected),
                    tuple((b.group, b.name) for b in mine if not b.connected),
                ),
            )
        ]

    def _take_roster(self, sender: str, roster: Roster, now: float) -> list[Action]:
        if not self._leading:
            return []
        peer = self._peer(sender, now)
        if roster.version < peer.roster_version:
            return []
        peer.roster_version = roster.version

        def names(of: tuple[tuple[str, str], ...], leader: Leader) -> frozenset[str]:
            return frozenset(name for group, name in of if group == leader.group)

        return self._to_leaders(
            lambda leader: RosterRead(
                sender,
                roster.version,
                names(roster.connected, leader),
                names(roster.connecting, leader),
            ),
            now,
        )

    # Time.

    def _tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for session in list(self._restless):
            actions += self._to_agent(session, Tick(), now)
        for group, followed in self._followed.items():
            if followed.ask is not None and followed.ask.due(now):
                actions.append(Look(group))
        for process, pulse in self._pulses.items():
            if now >= pulse.ping_at:
                actions.append(Send(process, pulse.ping(self._roster_version, now)))
        if self._leading and now >= self._beat_at:
            self._beat_at = now + self.times.ping_s
            actions.append(Beat(now))
        actions += self._judge_silence(now)
        actions += self._to_leaders(lambda _: Tick(), now)
        actions += self._let_go(now)
        if now >= self._probe_at:
            self._probe_at = now + self.times.probe_s
            actions += [Probe(process) for process in sorted(self._watched())]
        return actions

    def _judge_silence(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if not self._acting_leaders(now):
            return actions
        for process, peer in list(self._peers.items()):
            if now >= peer.heard_at + self.times.free_s:
                actions += self._lost(process, "silent", now)
        return actions

    def _let_go(self, now: float) -> list[Action]:
        """Resign where nothing is left to lead from here, and forget what is not needed."""
        actions: list[Action] = []
        used = {agent.group for agent in self._agents.values()}
        for group, leading in list(self._leading.items()):
            leader = leading.leader
            if group not in used and not leader.serves(self.process) and leader.settled:
                del self._leading[group]
                actions.append(Resign(group, leader.term))
        for group in self._followed.keys() - used - self._leading.keys():
            del self._followed[group]
        needed = {
            entry.process
            for borrower in self._borrowers()
            for entry in (borrower.leader, borrower.taken_in_by)
            if entry is not None
        }
        for process in self._pulses.keys() - needed:
            del self._pulses[process]
        if not self._leading:
            self._peers.clear()
        return actions

    def _watched(self) -> set[str]:
        """The processes whose death matters here."""
        watched = {f.entry.process for f in self._followed.values() if f.entry is not None}
        for leading in self._leading.values():
            watched |= leading.leader.processes
            if leading.predecessor is not None:
                watched.add(leading.predecessor)
        return watched - {self.process}
