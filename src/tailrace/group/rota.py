"""Whose turn it is among the units of a session.

A unit is in the round while it may have something to hand out. It leaves the round when somebody
looked and there was nothing, and comes back when something happens to it: so a turn costs what
there is to do, however many units there are.

What was read ahead is bounded for all units together. While units of the round hold as much as they
may, only those that hold something have a turn; the others, which would have to read, are next when
that is handed out. A unit that cannot go on is not in the round, and stops nobody by what it holds.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from tailrace.group.offer import Counts
from tailrace.message import Partition

if TYPE_CHECKING:
    from tailrace.group.holding import Holding
    from tailrace.group.owned import Owned

_Queue = OrderedDict["Owned", int]
"""Units with their tickets. Of a plain dict the first is found ever more slowly as others leave."""


class Rota:
    """The units of a session, by what is due for them. With the lock of the session."""

    def __init__(self, prefetch_bytes: int) -> None:
        self.units: dict[str, Owned] = {}
        """All of them, by name."""
        self.unsaved: set[Owned] = set()
        """Those of which something may be acknowledged and not committed."""
        self.held_bytes = 0
        """What the units of the round have read and not handed out."""
        self._prefetch_bytes = prefetch_bytes
        self._past = Counts(0, 0, 0)
        self._stocked: _Queue = OrderedDict()
        self._hungry: _Queue = OrderedDict()
        self._tickets = count()
        self._ending: set[Owned] = set()
        self._waiting: set[Owned] = set()
        self._alarms: list[tuple[float, str]] = []

    @property
    def size(self) -> int:
        """How many units are in the round."""
        return len(self._stocked) + len(self._hungry)

    @property
    def room(self) -> bool:
        """Whether more may be read."""
        return self.held_bytes < self._prefetch_bytes

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done for any unit, as far as is known."""
        if self._stocked or self._hungry or self._ending:
            return False
        return all(owned.quiet or owned.blocked for owned in self._waiting)

    @property
    def holdings(self) -> dict[Partition, Holding]:
        """The units whose ledgers were read."""
        units = self.units.values()
        return {owned.partition: owned.holding for owned in units if owned.holding is not None}

    @property
    def counts(self) -> Counts:
        """What was handed out, acknowledged and given back of all units there were."""
        return _sum(self._past, *(holding.counts for holding in self.holdings.values()))

    def find(self, unit: str, epoch: int) -> Owned | None:
        """The unit, if that is the epoch at which it is owned."""
        owned = self.units.get(unit)
        return owned if owned is not None and owned.epoch == epoch else None

    def add(self, owned: Owned) -> None:
        """Take in a unit, instead of another of its name."""
        self.remove(self.units.get(owned.name))
        self.units[owned.name] = owned
        self.put(owned)

    def remove(self, owned: Owned | None) -> None:
        """A unit is gone, if it was there."""
        if owned is None or self.units.get(owned.name) is not owned:
            return
        owned.gone = True
        del self.units[owned.name]
        self._take_out(owned)
        self.unsaved.discard(owned)
        self._ending.discard(owned)
        if owned.holding is not None:
            self._past = _sum(self._past, owned.holding.counts)

    def put(self, owned: Owned) -> None:
        """It may have something to hand out: it is the last of the round."""
        self._take_out(owned)
        if owned.gone:
            return
        holding = owned.holding
        if holding is not None and holding.stocked:
            self._stocked[owned] = next(self._tickets)
            owned.held_bytes = holding.ahead_bytes
            self.held_bytes += owned.held_bytes
        else:
            self._hungry[owned] = next(self._tickets)

    def retire(self, owned: Owned, now: float) -> None:
        """It has nothing to hand out until something happens to it, or a time has come."""
        self._take_out(owned)
        if owned.gone:
            return
        self._note_end(owned)
        if not owned.quiet:
            self._waiting.add(owned)
        due = owned.due(now)
        if due < inf and due not in owned.alarms:
            owned.alarms.add(due)
            heapq.heappush(self._alarms, (due, owned.name))

    def stir(self, owned: Owned) -> bool:
        """Something happened to it; whether that makes anything due that was not."""
        if owned.gone:
            return False
        ends = self._note_end(owned)
        if owned in self._stocked or owned in self._hungry:
            return ends
        self.put(owned)
        return True

    def release(self) -> None:
        """Give up what is in hand, of all."""
        for owned in self.units.values():
            if owned.holding is not None:
                owned.holding.release()
                self.stir(owned)

    def ring(self, now: float) -> None:
        """Bring back those whose time has come."""
        while self._alarms and self._alarms[0][0] <= now:
            due, name = heapq.heappop(self._alarms)
            if (owned := self.units.get(name)) is not None:
                owned.alarms.discard(due)
                self.stir(owned)

    @property
    def alarm_at(self) -> float:
        """When to `ring` next."""
        return self._alarms[0][0] if self._alarms else inf

    def pick(self) -> Owned | None:
        """The one whose turn it is, for the caller to `put` or `retire` again."""
        stocked, hungry = next(iter(self._stocked), None), next(iter(self._hungry), None)
        if hungry is None or stocked is None:
            return stocked or hungry
        first = self.room and self._hungry[hungry] < self._stocked[stocked]
        return hungry if first else stocked

    def take_ending(self, now: float) -> list[Owned]:
        """Those whose final progress is due; it is the caller's now."""
        ending = [owned for owned in self._ending if not owned.rests(now)]
        self._ending.difference_update(ending)
        return ending

    def take_unsaved(self) -> set[Owned]:
        """Those to be committed; that is the caller's now."""
        unsaved, self.unsaved = self.unsaved, set()
        return unsaved

    def _note_end(self, owned: Owned) -> bool:
        if not owned.ends or owned in self._ending:
            return False
        self._ending.add(owned)
        return True

    def _take_out(self, owned: Owned) -> None:
        self._waiting.discard(owned)
        if self._hungry.pop(owned, None) is None and self._stocked.pop(owned, None) is not None:
            self.held_bytes -= owned.held_bytes


def _sum(*counts: Counts) -> Counts:
    return Counts(*map(sum, zip(*counts, strict=True)))
