"""All that a process borrows: its sessions, their agents, and the list of borrowers for leaders.

A borrower's name begins with that of its session, the name by which people know the consumer. What
follows makes it one that no borrower, before or after it and in whatever process, has.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.group.actions import Action, Departed, Send
from tailrace.group.agent import Agent, AgentEvent
from tailrace.group.borrower import Borrower, LeaderAt
from tailrace.group.events import Subscribed, Tick, Unsubscribed
from tailrace.group.messages import Disconnect, Roster, ToBorrower
from tailrace.group.naming import borrower_name, consumer_of
from tailrace.group.times import Times
from tailrace.group.unit import LeaderEntry


class Borrowing:
    """The agents of a process. For one thread, and without I/O."""

    def __init__(self, process: str, times: Times) -> None:
        self.roster_version = 0
        """A number that rises whenever the list of borrowers changes."""
        self.departures = 0
        """How many sessions have gone."""
        self._process = process
        self._times = times
        self._agents: dict[str, Agent] = {}
        self._restless: set[str] = set()
        """The sessions whose agents may have a deadline: asking one is to look at all it has."""
        self._made = 0

    def __iter__(self) -> Iterator[Borrower]:
        for agent in self._agents.values():
            yield from agent

    def current(self, session: str) -> Borrower | None:
        """The borrower by which a session has what it owns. From any thread."""
        agent = self._agents.get(session)
        return None if agent is None else agent.current

    def groups(self) -> set[str]:
        """The groups that sessions share."""
        return {agent.group for agent in self._agents.values()}

    def shares(self, group: str) -> bool:
        """Whether a session shares a group."""
        return any(agent.group == group for agent in self._agents.values())

    def subscribe(self, event: Subscribed, leader: LeaderEntry | None, now: float) -> list[Action]:
        """A session wants a share of a group, of which it is known who leads it, or not."""
        agent = self._agents.get(event.session)
        if agent is None:
            agent = Agent(event.session, event.group, self._make)
            self._agents[event.session] = agent
        actions: list[Action] = []
        if leader is not None:
            actions += agent.handle(LeaderAt(leader, self.roster_version), now)
        return actions + self.tell(event.session, event, now)

    def tell(self, session: str, event: AgentEvent, now: float) -> list[Action]:
        """Give an event to the agent of a session; without one, nothing is left to be done."""
        agent = self._agents.get(session)
        if agent is None:
            return [Departed(session)] if isinstance(event, Unsubscribed) else []
        before = len(list(agent))
        actions = agent.handle(event, now)
        after = len(list(agent))
        if after != before:
            self.roster_version += 1
        if after:
            self._restless.add(session)
        else:
            self._restless.discard(session)
            del self._agents[session]
            self.departures += 1
        return actions

    def follow(self, group: str, leader: LeaderEntry, now: float) -> list[Action]:
        """Another leads a group."""
        self.roster_version += 1
        found = LeaderAt(leader, self.roster_version)
        actions: list[Action] = []
        for session in [agent.session for agent in self._agents.values() if agent.group == group]:
            actions += self.tell(session, found, now)
        return actions

    def heard(self, sender: str, message: ToBorrower, now: float) -> list[Action]:
        """A leader says something to a borrower. If that is no more, it is told so."""
        session = consumer_of(message.borrower)
        agent = self._agents.get(session)
        if agent is not None and any(borrower.name == message.borrower for borrower in agent):
            return self.tell(session, message, now)
        return [Send(sender, Disconnect(message.group, message.borrower))]

    def roster(self, leader: str) -> Roster:
        """The borrowers here of groups that a process leads."""
        mine = [b for b in self if b.leader and b.leader.process == leader]
        connected, connecting = (
            tuple((b.group, b.name) for b in mine if b.connected is said) for said in (True, False)
        )
        return Roster(self.roster_version, connected, connecting)

    def leaders(self) -> set[str]:
        """The processes whose word counts for borrowers here, or will."""
        return {
            entry.process
            for borrower in self
            for entry in (borrower.leader, borrower.taken_in_by)
            if entry is not None
        }

    def tick(self, now: float) -> list[Action]:
        """Let borrowers say things again."""
        actions: list[Action] = []
        for session in sorted(self._restless):
            actions += self.tell(session, Tick(), now)
        return actions

    def deadline(self) -> float | None:
        """When `tick` has something to do."""
        moments = []
        for session in list(self._restless):
            at = self._agents[session].deadline()
            if at is None:
                self._restless.remove(session)
            else:
                moments.append(at)
        return min(moments, default=None)

    def validate(self) -> None:
        """Every invariant of every borrower."""
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
