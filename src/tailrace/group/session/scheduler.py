"""Which unit of a session has its turn next. Pure: no lock, thread, clock or backend.

A unit is in the ready queue while it may have a record to deliver. It leaves the queue when it was
checked and had none, and comes back when something happens to it. So a turn costs what there is to
do, however many units there are.

The memory of records that were read ahead is bounded for all units together. While the units in the
queue hold as much as they may, only the units that hold records have a turn. The others, which
would have to read, are next when those records are delivered. A unit that cannot continue is not in
the queue, and its memory blocks no other unit.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import count
from math import inf
from typing import Generic, TypeVar

from tailrace.delivery.cursor import Cursor
from tailrace.delivery.fetched import DeliveryCounts
from tailrace.group.session.owned_unit import OwnedUnit
from tailrace.message import Partition

U = TypeVar("U", bound=OwnedUnit)


class Scheduler(Generic[U]):
    """The units of a session, by what is due for them. With the lock of the session."""

    def __init__(self, prefetch_bytes: int) -> None:
        self.units: dict[str, U] = {}
        """All units, by name."""
        self.held_bytes = 0
        """The size of the records that the units in the queue have read and not delivered."""
        self._prefetch_bytes = prefetch_bytes
        self._past = DeliveryCounts(0, 0, 0)
        # Units with their tickets. An OrderedDict: to find the first entry of a plain dict takes
        # ever longer as others leave.
        self._buffered: OrderedDict[U, int] = OrderedDict()
        self._unbuffered: OrderedDict[U, int] = OrderedDict()
        self._tickets = count()
        # Dicts as ordered sets: the order of what follows must not depend on addresses.
        self._unsaved: dict[U, None] = {}
        self._ending: dict[U, None] = {}
        self._waiting: dict[U, None] = {}
        self._timers: list[tuple[float, str]] = []

    @property
    def size(self) -> int:
        """The number of units in the ready queue."""
        return len(self._buffered) + len(self._unbuffered)

    @property
    def has_room(self) -> bool:
        """True if more records may be read ahead."""
        return self.held_bytes < self._prefetch_bytes

    @property
    def idle(self) -> bool:
        """True if nothing is to be done for any unit, as far as is known."""
        if self._buffered or self._unbuffered or self._ending:
            return False
        return all(owned.quiet or owned.blocked for owned in self._waiting)

    @property
    def cursors(self) -> dict[Partition, Cursor]:
        """The cursors of the units whose ledgers were loaded."""
        units = self.units.values()
        return {owned.partition: owned.cursor for owned in units if owned.cursor is not None}

    @property
    def counts(self) -> DeliveryCounts:
        """The number of deliveries, acks and nacks of all units, past ones included."""
        return _sum(self._past, *(cursor.counts for cursor in self.cursors.values()))

    def find(self, unit: str, epoch: int) -> U | None:
        """Return the unit if the session owns it at this epoch."""
        owned = self.units.get(unit)
        return owned if owned is not None and owned.epoch == epoch else None

    def add(self, owned: U) -> None:
        """Add a unit, instead of another of its name."""
        self.remove(self.units.get(owned.name))
        self.units[owned.name] = owned
        self.put(owned)

    def remove(self, owned: U | None) -> None:
        """Remove a unit, if it is there."""
        if owned is None or self.units.get(owned.name) is not owned:
            return
        owned.removed = True
        del self.units[owned.name]
        self._take_out(owned)
        self._unsaved.pop(owned, None)
        self._ending.pop(owned, None)
        if owned.cursor is not None:
            self._past = _sum(self._past, owned.cursor.counts)

    def put(self, owned: U) -> None:
        """Append a unit to the ready queue: it may have a record to deliver."""
        self._take_out(owned)
        if owned.removed:
            return
        cursor = owned.cursor
        if cursor is not None and cursor.buffered:
            self._buffered[owned] = next(self._tickets)
            owned.held_bytes = cursor.ahead_bytes
            self.held_bytes += owned.held_bytes
        else:
            self._unbuffered[owned] = next(self._tickets)

    def retire(self, owned: U, now: float) -> None:
        """Take a unit out of the ready queue until something happens to it, or a time has come."""
        self._take_out(owned)
        if owned.removed:
            return
        self._check_end(owned)
        if not owned.quiet:
            self._waiting[owned] = None
        due = owned.due(now)
        if due < inf and due not in owned.timers:
            owned.timers.add(due)
            heapq.heappush(self._timers, (due, owned.name))

    def requeue(self, owned: U) -> bool:
        """Put a unit to which something happened back into the ready queue, if it is not there.

        Returns True if anything is due that was not due before.
        """
        if owned.removed:
            return False
        ends = self._check_end(owned)
        if owned in self._buffered or owned in self._unbuffered:
            return ends
        self.put(owned)
        return True

    def requeue_due(self, now: float) -> None:
        """Put the units whose timers have ended back into the ready queue."""
        while self._timers and self._timers[0][0] <= now:
            due, name = heapq.heappop(self._timers)
            if (owned := self.units.get(name)) is not None:
                owned.timers.discard(due)
                self.requeue(owned)

    @property
    def due_at(self) -> float:
        """When to call `requeue_due` next; infinity for never."""
        return self._timers[0][0] if self._timers else inf

    def pick(self) -> U | None:
        """Return the unit whose turn it is. The caller has to `put` or `retire` it."""
        buffered, unbuffered = next(iter(self._buffered), None), next(iter(self._unbuffered), None)
        if unbuffered is None or buffered is None:
            return buffered or unbuffered
        first = self.has_room and self._unbuffered[unbuffered] < self._buffered[buffered]
        return unbuffered if first else buffered

    def pop_ending(self, now: float) -> list[U]:
        """Return the units whose final progress is due. The caller has to commit it."""
        ending = [owned for owned in self._ending if not owned.backs_off(now)]
        for owned in ending:
            del self._ending[owned]
        return ending

    def must_save(self, owned: U) -> None:
        """Record that a unit may have acknowledgements that are not committed."""
        if not owned.removed:
            self._unsaved[owned] = None

    def pop_unsaved(self) -> list[U]:
        """Return the units that `must_save` named. The caller has to commit their progress."""
        unsaved, self._unsaved = list(self._unsaved), {}
        return unsaved

    def _check_end(self, owned: U) -> bool:
        if not owned.ends or owned in self._ending:
            return False
        self._ending[owned] = None
        return True

    def _take_out(self, owned: U) -> None:
        self._waiting.pop(owned, None)
        if (
            self._unbuffered.pop(owned, None) is None
            and self._buffered.pop(owned, None) is not None
        ):
            self.held_bytes -= owned.held_bytes


def _sum(*counts: DeliveryCounts) -> DeliveryCounts:
    return DeliveryCounts(*map(sum, zip(*counts, strict=True)))
