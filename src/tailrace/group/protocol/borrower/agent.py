"""The borrowers of a session: one that connects or is connected, and others that leave.

A borrower that its leader refuses is replaced by another with a new name. A borrower that
unsubscribes drains its units beside the borrower of the next subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from tailrace.group.protocol.actions import Action, Departed
from tailrace.group.protocol.borrower.borrower import Borrower, LeaderAt
from tailrace.group.protocol.events import (
    Died,
    Drained,
    Lost,
    Progressed,
    Subscribed,
    Tick,
    Unsubscribed,
)
from tailrace.group.protocol.messages import ToBorrower
from tailrace.group.protocol.unit import LeaderEntry

AgentEvent: TypeAlias = (
    Subscribed | Unsubscribed | Died | Progressed | Drained | Lost | LeaderAt | ToBorrower | Tick
)


class Agent:
    """All borrowers of one session. See `tailrace.machine.Machine`.

    `make` makes a new borrower with a unique name.
    """

    def __init__(self, session: str, group: str, make: Callable[[Subscribed], Borrower]) -> None:
        self.session = session
        self.group = group
        self.current: Borrower | None = None
        self._make = make
        self._subscribed: Subscribed | None = None
        self._leaving: list[Borrower] = []
        self._leader: LeaderEntry | None = None

    def __iter__(self) -> Iterator[Borrower]:
        if self.current is not None:
            yield self.current
        yield from self._leaving

    def handle(self, event: AgentEvent, now: float) -> list[Action]:
        """Handle an event of the session, or a message of a borrower's leader."""
        match event:
            case Subscribed():
                self._subscribed = event
                return self._begin(now)
            case Unsubscribed():
                return self._unsubscribe(event, now)
            case Died():
                self._subscribed = None
                return self._all(event, now)
            case LeaderAt(entry, _):
                self._leader = entry
                return self._all(event, now)
            case Progressed() | Drained() | Lost() | Tick():
                return self._all(event, now)
            case _:
                named = [borrower for borrower in self if borrower.name == event.borrower]
                return self._each(named, event, now)

    def deadline(self) -> float | None:
        """Return the earliest deadline of the borrowers."""
        times = [borrower.deadline() for borrower in self]
        return min((time for time in times if time is not None), default=None)

    def validate(self) -> None:
        """Check every invariant of every borrower."""
        for borrower in self:
            borrower.validate()

    def _begin(self, now: float) -> list[Action]:
        if self._subscribed is None or self.current is not None:
            return []
        self.current = self._make(self._subscribed)
        if self._leader is None:
            return []
        found = LeaderAt(self._leader, self.current.roster_version)
        return self.current.handle(found, now)

    def _unsubscribe(self, event: Unsubscribed, now: float) -> list[Action]:
        self._subscribed = None
        if self.current is None:
            return []
        leaving, self.current = self.current, None
        self._leaving.append(leaving)
        return self._each([leaving], event, now)

    def _all(self, event: AgentEvent, now: float) -> list[Action]:
        return self._each(list(self), event, now)

    def _each(self, borrowers: list[Borrower], event: AgentEvent, now: float) -> list[Action]:
        assert not isinstance(event, Subscribed)
        actions: list[Action] = []
        for borrower in borrowers:
            actions += borrower.handle(event, now)
            if borrower.state is None:
                actions += self._ended(borrower, now)
        return actions

    def _ended(self, borrower: Borrower, now: float) -> list[Action]:
        if borrower is self.current:
            self.current = None
            return self._begin(now)
        self._leaving.remove(borrower)
        if self._subscribed is None and not self._leaving:
            return [Departed(self.session)]
        return []
