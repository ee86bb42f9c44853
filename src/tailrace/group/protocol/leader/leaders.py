"""The groups that a process leads: how long it may act for them, and which processes are alive.

A leader acts only within its lease. Each heartbeat extends the lease, for the groups that the
process still leads by a read of the store after the heartbeat. A process takes over a group only if
it has seen no heartbeat of the leader for a lease. If a heartbeat came between the last probe and
the takeover, the previous leader may act for one more lease. So grants are left alone for that
lease too, until it is certain that the previous leader had stopped.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tailrace.group.protocol.actions import Action, Resign, Send
from tailrace.group.protocol.events import Beaten, Elected, Tick
from tailrace.group.protocol.leader import reasons
from tailrace.group.protocol.leader.events import FromBorrower, LeaderEvent, ProcessLost, RosterRead
from tailrace.group.protocol.leader.leader import Leader
from tailrace.group.protocol.messages import LeaderWanted, Ping, PingResponse, Roster, ToLeader
from tailrace.group.protocol.times import Times

_NEVER = float("-inf")


@dataclass(slots=True)
class _Led:
    """A group that this process leads. `predecessor` led it before, and may still act."""

    leader: Leader
    elected_at: float
    acting_until: float
    predecessor: str | None
    due: float | None
    """The leader's deadline; None if it must be computed again, which is expensive."""
    early: dict[str, FromBorrower] = field(default_factory=dict)
    """By borrower: requests to connect that came while the leader could not act."""


@dataclass(slots=True)
class _Peer:
    """A process with borrowers of groups that are led here."""

    last_message_at: float
    roster_version: int = 0
    rosters: dict[str, RosterRead] = field(default_factory=dict)
    """By group: the borrowers in the newest roster of the process."""
    agreed: dict[str, int] = field(default_factory=dict)
    """By group: the version of the leader's borrowers that agrees with the roster."""


class Leaders:
    """The leaders of a process. For one thread, and without I/O."""

    def __init__(self, process: str, times: Times) -> None:
        self._process = process
        self._times = times
        self._led: dict[str, _Led] = {}
        self._peers: dict[str, _Peer] = {}

    def __contains__(self, group: str) -> bool:
        return group in self._led

    def groups(self) -> list[str]:
        """Return the groups that this process leads."""
        return list(self._led)

    def leader(self, group: str) -> Leader | None:
        """Return the leader of a group; None if another process leads it."""
        led = self._led.get(group)
        return None if led is None else led.leader

    def begin(self, event: Elected, predecessor: str | None, now: float) -> None:
        """Start to lead a group. `predecessor` is the process that led it until now, if any."""
        for peer in self._peers.values():
            peer.agreed.pop(event.group, None)
        patience_s = self._times.free_s
        if predecessor is not None:
            patience_s += self._times.lease_s
        self._led[event.group] = _Led(
            Leader(event.group, event.term, self._times, event.grants, now + patience_s, now),
            elected_at=now,
            acting_until=_NEVER,
            predecessor=predecessor,
            due=now,
        )

    def end(self, group: str) -> None:
        """Stop leading a group."""
        self._led.pop(group, None)
        if not self._led:
            self._peers.clear()

    def handle(self, group: str, event: LeaderEvent, now: float) -> list[Action]:
        """Handle an event of a group; ignore it if this process does not lead the group."""
        led = self._led.get(group)
        if led is None:
            return []
        actions = led.leader.handle(event, now)
        led.due = None
        if led.leader.deposed:
            self.end(group)
        return actions

    def received(self, sender: str, message: ToLeader, now: float) -> list[Action]:
        """Handle a message of a borrower. Requests to connect wait while the leader cannot act."""
        led = self._led.get(message.group)
        if led is None:
            return []
        self._peer(sender, now)
        received = FromBorrower(sender, message)
        if now < led.acting_until:
            return self.handle(message.group, received, now)
        if isinstance(message, LeaderWanted):
            led.early[message.borrower] = received
        return []

    def pinged(self, sender: str, ping: Ping, now: float) -> list[Action]:
        """Answer a ping with the groups of its borrowers that this process may act for.

        While a leader and the roster of the process disagree, each ping compares them again.
        """
        if not self._led:
            return [Send(sender, PingResponse(ping.number, 0, ()))]
        peer = self._peer(sender, now)
        actions: list[Action] = []
        led = []
        for leader in self._acting(now):
            group = leader.group
            if not leader.members.serves(sender) and group not in peer.rosters:
                continue
            if peer.roster_version and peer.agreed.get(group) != leader.members.version:
                actions += self._compare(sender, peer, leader, now)
            agreed = peer.agreed.get(group) == leader.members.version
            if agreed and leader.members.serves(sender) and leader.trusts(sender):
                led.append((group, leader.term))
        answer = PingResponse(ping.number, peer.roster_version, tuple(led))
        return [*actions, Send(sender, answer)]

    def _compare(self, sender: str, peer: _Peer, leader: Leader, now: float) -> list[Action]:
        empty = RosterRead(sender, peer.roster_version, frozenset(), frozenset())
        roster = peer.rosters.get(leader.group, empty)
        actions = self.handle(leader.group, roster, now)
        if not leader.members.unknown_in(roster):
            peer.agreed[leader.group] = leader.members.version
        return actions

    def roster(self, sender: str, roster: Roster, now: float) -> None:
        """Record the roster of a process."""
        if not self._led:
            return
        peer = self._peer(sender, now)
        if roster.version > peer.roster_version:
            peer.roster_version = roster.version
            peer.rosters = _by_group(sender, roster)
            peer.agreed.clear()

    def lost(self, process: str, why: str, now: float) -> list[Action]:
        """Remove the borrowers of a process that died or whose lease expired."""
        self._peers.pop(process, None)
        for led in self._led.values():
            for borrower in [name for name, early in led.early.items() if early.process == process]:
                del led.early[borrower]
        actions: list[Action] = []
        for leader in self._acting(now):
            actions += self.handle(leader.group, ProcessLost(process, why), now)
        return actions

    def predecessor_ended(self, process: str, probed_at: float) -> None:
        """Record that a process was dead, or had sent no heartbeat for a lease, at `probed_at`.

        Groups that it led before no longer wait for its lease: they adopt grants for one lease from
        that time on.
        """
        for led in self._led.values():
            if led.predecessor == process and probed_at >= led.elected_at:
                led.predecessor = None
                adopt_until = probed_at + self._times.free_s
                led.leader.adopt_until = min(led.leader.adopt_until, adopt_until)
                led.due = _NEVER

    def beaten(self, beaten: Beaten, now: float) -> list[str]:
        """Extend the lease of the groups that this process still leads. Returns the others."""
        terms = dict(beaten.led)
        lapsed, ended = False, []
        for group, led in list(self._led.items()):
            if terms.get(group) == led.leader.term:
                lapsed = lapsed or now >= led.acting_until
                led.acting_until = max(led.acting_until, beaten.sent_at + self._times.hold_s)
                if led.early:
                    led.due = _NEVER
            elif beaten.sent_at >= led.elected_at:
                self.end(group)
                ended.append(group)
        if lapsed:
            # This process was stopped or cut off from the store: it cannot judge who was silent.
            for peer in self._peers.values():
                peer.last_message_at = now
        return ended

    def tick(self, now: float) -> list[Action]:
        """Remove silent processes, and tick every leader that may act."""
        actions: list[Action] = []
        if not self._acting(now):
            return actions
        for process, peer in list(self._peers.items()):
            if now >= peer.last_message_at + self._times.free_s:
                actions += self.lost(process, reasons.lease_expired(self._times.free_s), now)
        for group, led in list(self._led.items()):
            if now < led.acting_until and _due(led) <= now:
                early, led.early = led.early, {}
                for wanted in early.values():
                    actions += self.handle(group, wanted, now)
                actions += self.handle(group, Tick(), now)
        return actions

    def resign(self, used: set[str]) -> list[Action]:
        """Resign from idle groups of which this process has no session any more."""
        actions: list[Action] = []
        for group, led in list(self._led.items()):
            idle = led.leader.idle and not led.leader.members.serves(self._process)
            if group not in used and idle:
                self.end(group)
                actions.append(Resign(group, led.leader.term))
        return actions

    def deadline(self, now: float) -> float | None:
        """Return the time of the next tick."""
        acting = [_due(led) for led in self._led.values() if now < led.acting_until]
        if acting:
            acting += [peer.last_message_at + self._times.free_s for peer in self._peers.values()]
        return min(acting, default=None)

    def watched(self) -> set[str]:
        """Return the processes that must be probed."""
        watched: set[str] = set()
        for led in self._led.values():
            watched |= led.leader.members.processes
            if led.predecessor is not None:
                watched.add(led.predecessor)
        return watched

    def validate(self) -> None:
        """Check every invariant of every leader."""
        for led in self._led.values():
            led.leader.validate()

    def _acting(self, now: float) -> list[Leader]:
        return [led.leader for led in self._led.values() if now < led.acting_until]

    def _peer(self, process: str, now: float) -> _Peer:
        peer = self._peers.setdefault(process, _Peer(now))
        peer.last_message_at = max(peer.last_message_at, now)
        return peer


def _due(led: _Led) -> float:
    if led.due is None:
        due = led.leader.deadline()
        led.due = _NEVER if due is None else due
    return led.due


def _by_group(process: str, roster: Roster) -> dict[str, RosterRead]:
    connected: defaultdict[str, set[str]] = defaultdict(set)
    connecting: defaultdict[str, set[str]] = defaultdict(set)
    for names, by_group in ((roster.connected, connected), (roster.connecting, connecting)):
        for group, name in names:
            by_group[group].add(name)
    return {
        group: RosterRead(
            process, roster.version, frozenset(connected[group]), frozenset(connecting[group])
        )
        for group in {**connected, **connecting}
    }
