"""The agents of a process, one per session, and the roster of their borrowers for leaders."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.group.protocol.actions import Action, Departed, Send
from tailrace.group.protocol.borrower.agent import Agent, AgentEvent
from tailrace.group.protocol.borrower.borrower import Borrower, LeaderAt
from tailrace.group.protocol.events import Subscribed, Tick, Unsubscribed
from tailrace.group.protocol.messages import Disconnect, Roster, ToBorrower
from tailrace.group.protocol.names import borrower_name, consumer_of
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import LeaderEntry


class Agents:
    """The agents of a process. For one thread, and without I/O."""

    def __init__(self, process: str, times: Times) -> None:
        self.roster_version = 0
        """A number that increases with every change of the roster."""
        self.departures = 0
        """The number of sessions that have left."""
        self._process = process
        self._times = times
        self._agents: dict[str, Agent] = {}
        self._with_deadline: set[str] = set()
        """The sessions whose agents may have a deadline. Computing a deadline is expensive."""
        self._made = 0

    def __iter__(self) -> Iterator[Borrower]:
        for agent in self._agents.values():
            yield from agent

    def current(self, session: str) -> Borrower | None:
        """Return the borrower of a session that holds its units. Any thread."""
        agent = self._agents.get(session)
        return None if agent is None else agent.current

    def groups(self) -> set[str]:
        """Return the groups of all sessions."""
        return {agent.group for agent in self._agents.values()}

    def has_session(self, group: str) -> bool:
        """True if a session of this process is in a group."""
        return any(agent.group == group for agent in self._agents.values())

    def subscribe(self, event: Subscribed, leader: LeaderEntry | None, now: float) -> list[Action]:
        """Add a session to a group. `leader` is the group's leader, if it is known."""
        agent = self._agents.get(event.session)
        if agent is None:
            agent = Agent(event.session, event.group, self._make)
            self._agents[event.session] = agent
        actions: list[Action] = []
        if leader is not None:
            actions += agent.handle(LeaderAt(leader, self.roster_version), now)
        return actions + self.handle(event.session, event, now)

    def handle(self, session: str, event: AgentEvent, now: float) -> list[Action]:
        """Handle an event of a session. A session without an agent has already left."""
        agent = self._agents.get(session)
        if agent is None:
            return [Departed(session)] if isinstance(event, Unsubscribed) else []
        before = len(list(agent))
        actions = agent.handle(event, now)
        after = len(list(agent))
        if after != before:
            self.roster_version += 1
        if after:
            self._with_deadline.add(session)
        else:
            self._with_deadline.discard(session)
            del self._agents[session]
            self.departures += 1
        return actions

    def follow(self, group: str, leader: LeaderEntry, now: float) -> list[Action]:
        """Follow a new leader of a group."""
        self.roster_version += 1
        found = LeaderAt(leader, self.roster_version)
        actions: list[Action] = []
        for session in [agent.session for agent in self._agents.values() if agent.group == group]:
            actions += self.handle(session, found, now)
        return actions

    def received(self, sender: str, message: ToBorrower, now: float) -> list[Action]:
        """Handle a message of a leader. Answer `Disconnect` for a borrower that has ended."""
        session = consumer_of(message.borrower)
        agent = self._agents.get(session)
        if agent is not None and any(borrower.name == message.borrower for borrower in agent):
            return self.handle(session, message, now)
        return [Send(sender, Disconnect(message.group, message.borrower))]

    def roster(self, leader: str) -> Roster:
        """Return the roster for a leader: the borrowers here of groups that the process leads."""
        mine = [b for b in self if b.leader and b.leader.process == leader]
        connected = tuple((b.group, b.name) for b in mine if b.connected)
        connecting = tuple((b.group, b.name) for b in mine if not b.connected)
        return Roster(self.roster_version, connected, connecting)

    def leaders(self) -> set[str]:
        """Return the leaders of the borrowers here, and the processes that accepted them last."""
        return {
            entry.process
            for borrower in self
            for entry in (borrower.leader, borrower.connected_to)
            if entry is not None
        }

    def tick(self, now: float) -> list[Action]:
        """Tick every agent that may have a deadline."""
        actions: list[Action] = []
        for session in sorted(self._with_deadline):
            actions += self.handle(session, Tick(), now)
        return actions

    def deadline(self) -> float | None:
        """Return the time of the next tick."""
        times = []
        for session in list(self._with_deadline):
            at = self._agents[session].deadline()
            if at is None:
                self._with_deadline.remove(session)
            else:
                times.append(at)
        return min(times, default=None)

    def validate(self) -> None:
        """Check every invariant of every borrower."""
        for agent in self._agents.values():
            agent.validate()

    def _make(self, subscribed: Subscribed) -> Borrower:
        self._made += 1
        self.roster_version += 1
        return Borrower(
            name=borrower_name(subscribed.session, self._process, self._made),
            session=subscribed.session,
            group=subscribed.group,
            revoke_timeout_s=subscribed.revoke_timeout_s,
            roster_version=self.roster_version,
            times=self._times,
        )
