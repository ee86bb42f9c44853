"""All groups that a process leads: for how long it may act, and who of its borrowers lives.

A leader acts only while its lease lasts: that is given by each beat, for the groups that the
process leads by a look at the store that came after the beat. Whoever takes over has seen no beat
for a lease. If a beat came between that look and the takeover, the leader before may have acted for
one lease more: so grants are left alone for a lease longer, until it is certain that it had not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.group import reasons
from tailrace.group.actions import Action, Resign, Send
from tailrace.group.events import Beaten, Elected, Tick
from tailrace.group.leader import Leader
from tailrace.group.leader_events import Heard, LeaderEvent, ProcessLost, RosterRead
from tailrace.group.messages import LeaderWanted, Ping, PingResponse, Roster, ToLeader
from tailrace.group.times import Times

_NEVER = float("-inf")


@dataclass(slots=True)
class _Led:
    """A group that this process leads. `predecessor` led it before, and may act for a while yet."""

    leader: Leader
    elected_at: float
    acting_until: float
    predecessor: str | None
    due: float | None
    """The leader's deadline, or None once it is to be asked for: that is to look at all it has."""
    early: dict[str, Heard] = field(default_factory=dict)
    """By borrower: who wanted to be taken in while it could not act."""


@dataclass(slots=True)
class _Peer:
    """A process that has borrowers of groups which are led here."""

    heard_at: float
    roster_version: int = 0
    rosters: dict[str, RosterRead] = field(default_factory=dict)
    """By group: what its list of borrowers says."""
    agreed: dict[str, int] = field(default_factory=dict)
    """By group: the membership with which the leader knows all that the list has."""


class Leading:
    """The leaders of a process. For one thread, and without I/O."""

    def __init__(self, process: str, times: Times) -> None:
        self._process = process
        self._times = times
        self._led: dict[str, _Led] = {}
        self._peers: dict[str, _Peer] = {}

    def __contains__(self, group: str) -> bool:
        return group in self._led

    def groups(self) -> list[str]:
        """The groups that are led here."""
        return list(self._led)

    def leader(self, group: str) -> Leader | None:
        """The leader of a group."""
        led = self._led.get(group)
        return None if led is None else led.leader

    def begin(self, event: Elected, predecessor: str | None, now: float) -> None:
        """Lead a group, which another process may have led until now."""
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
        """Lead a group no longer."""
        self._led.pop(group, None)
        if not self._led:
            self._peers.clear()

    def handle(self, group: str, event: LeaderEvent, now: float) -> list[Action]:
        """Give an event to the leader of a group; without one, or once it is deposed, nothing."""
        led = self._led.get(group)
        if led is None:
            return []
        actions = led.leader.handle(event, now)
        led.due = None
        if led.leader.deposed:
            self.end(group)
        return actions

    def heard(self, sender: str, message: ToLeader, now: float) -> list[Action]:
        """A borrower of a process says something to its leader."""
        led = self._led.get(message.group)
        if led is None:
            return []
        self._peer(sender, now)
        heard = Heard(sender, message)
        if now < led.acting_until:
            return self.handle(message.group, heard, now)
        if isinstance(message, LeaderWanted):
            led.early[message.borrower] = heard
        return []

    def pinged(self, sender: str, ping: Ping, now: float) -> list[Action]:
        """Answer a ping: which groups of its borrowers this process may act for.

        Where a leader and the list of borrowers do not agree, the list is gone by again each time.
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
        nobody = RosterRead(sender, peer.roster_version, frozenset(), frozenset())
        roster = peer.rosters.get(leader.group, nobody)
        actions = self.handle(leader.group, roster, now)
        if not leader.members.strange_in(roster):
            peer.agreed[leader.group] = leader.members.version
        return actions

    def roster(self, sender: str, roster: Roster, now: float) -> None:
        """A process says which borrowers it has."""
        if not self._led:
            return
        peer = self._peer(sender, now)
        if roster.version > peer.roster_version:
            peer.roster_version = roster.version
            peer.rosters = _by_group(sender, roster)
            peer.agreed.clear()

    def lost(self, process: str, why: str, now: float) -> list[Action]:
        """The borrowers of a process are no more."""
        self._peers.pop(process, None)
        for led in self._led.values():
            for borrower in [name for name, heard in led.early.items() if heard.process == process]:
                del led.early[borrower]
        return self._tell_all(lambda _: ProcessLost(process, why), now)

    def outlived(self, process: str, looked_at: float) -> None:
        """A process had not beaten for a lease by then, or was dead.

        So what it acted on as the leader of groups that are led here now ended before that, and one
        lease from then is enough.
        """
        for led in self._led.values():
            if led.predecessor == process and looked_at >= led.elected_at:
                led.predecessor = None
                adopt_until = looked_at + self._times.free_s
                led.leader.adopt_until = min(led.leader.adopt_until, adopt_until)
                led.due = _NEVER

    def beaten(self, beaten: Beaten, now: float) -> list[str]:
        """Extend what this process still leads; the groups that it leads no longer."""
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
            # It was stopped, or cut off from the store: so it cannot judge who was silent.
            for peer in self._peers.values():
                peer.heard_at = now
        return ended

    def tick(self, now: float) -> list[Action]:
        """Judge who is silent, and let leaders plan and say things again."""
        actions: list[Action] = []
        if not self._acting(now):
            return actions
        for process, peer in list(self._peers.items()):
            if now >= peer.heard_at + self._times.free_s:
                actions += self.lost(process, reasons.SILENT, now)
        for group, led in list(self._led.items()):
            if now < led.acting_until and _due(led) <= now:
                early, led.early = led.early, {}
                for heard in early.values():
                    actions += self.handle(group, heard, now)
                actions += self.handle(group, Tick(), now)
        return actions

    def resign(self, used: set[str]) -> list[Action]:
        """Give up groups of which this process has no session any more, once all is settled."""
        actions: list[Action] = []
        for group, led in list(self._led.items()):
            idle = led.leader.settled and not led.leader.members.serves(self._process)
            if group not in used and idle:
                self.end(group)
                actions.append(Resign(group, led.leader.term))
        return actions

    def deadline(self, now: float) -> float | None:
        """When `tick` has something to do."""
        acting = [_due(led) for led in self._led.values() if now < led.acting_until]
        if acting:
            acting += [peer.heard_at + self._times.free_s for peer in self._peers.values()]
        return min(acting, default=None)

    def watched(self) -> set[str]:
        """The processes whose death matters."""
        watched: set[str] = set()
        for led in self._led.values():
            watched |= led.leader.members.processes
            if led.predecessor is not None:
                watched.add(led.predecessor)
        return watched

    def validate(self) -> None:
        """Every invariant of every leader."""
        for led in self._led.values():
            led.leader.validate()

    def _acting(self, now: float) -> list[Leader]:
        return [led.leader for led in self._led.values() if now < led.acting_until]

    def _tell_all(self, make: Callable[[Leader], LeaderEvent], now: float) -> list[Action]:
        actions: list[Action] = []
        for leader in self._acting(now):
            actions += self.handle(leader.group, make(leader), now)
        return actions

    def _peer(self, process: str, now: float) -> _Peer:
        peer = self._peers.setdefault(process, _Peer(now))
        peer.heard_at = max(peer.heard_at, now)
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
