"""The gate of a process: one worker can have the process for itself, for a call that may end it.

All workers of a process begin and end their calls at its gate. A worker that wants to be alone
waits until no call is in flight. Meanwhile no call begins, so that it does not wait for ever. After
its turn each worker that was refused begins one call before anybody is alone again, so that a
worker with many such calls does not keep the others from theirs.

Pure, but for the lock that the gate is given. Workers are woken without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class GatePlace:
    """A worker at the gate of its process. `wake` has it ask again; it never blocks."""

    wake: Callable[[], None]
    in_flight: int = 0


class ProcessGate:
    """Counts the calls in flight of all workers of a process, and knows which of them is alone.

    With the lock of `threading` any thread may use it; without one, one thread at a time.
    """

    def __init__(self, lock: AbstractContextManager[object] | None = None) -> None:
        self._lock = nullcontext() if lock is None else lock
        self._in_flight = 0
        self._holder: GatePlace | None = None
        self._claims: deque[GatePlace] = deque()
        """Those that want to be alone, in order."""
        self._refused: dict[GatePlace, None] = {}
        """Those that wanted to begin a call while another one was alone, or wanted to be."""
        self._admitted: dict[GatePlace, None] = {}
        """Those of them that begin a call before anybody is alone again."""

    def enter(self, wake: Callable[[], None]) -> GatePlace:
        """Return a place for a worker. `wake` is called when it should ask again."""
        return GatePlace(wake)

    def leave(self, place: GatePlace) -> None:
        """Give up a place. Calls of its worker that still run count no more."""
        self.release(place)
        self.forgo(place)
        self.end(place, place.in_flight)

    # Calls beside others.

    def begin(self, place: GatePlace) -> bool:
        """Record that a call begins. False if it must not: another worker is alone, or waits to
        be. The one that is alone may always begin its call."""
        with self._lock:
            waits = bool(self._claims) and place not in self._admitted
            if self._holder is not place and (self._holder is not None or waits):
                self._refused[place] = None
                return False
            self._forget(place)
            self._count(place, 1)
            return True

    def join(self, place: GatePlace, calls: int) -> None:
        """Record further messages of a call that has begun."""
        with self._lock:
            self._count(place, calls)

    def end(self, place: GatePlace, calls: int = 1) -> None:
        """Record that calls have ended."""
        with self._lock:
            self._count(place, -min(calls, place.in_flight))
            woken = self._next()
        _wake(woken)

    def forgo(self, place: GatePlace) -> None:
        """Record that a worker that was refused has nothing to call now."""
        with self._lock:
            self._forget(place)
            woken = self._next()
        _wake(woken)

    # Alone.

    def claim(self, place: GatePlace) -> bool:
        """Ask to be alone. True if the worker is, until `release`. False if it waits: it is woken,
        and asks again."""
        with self._lock:
            if self._holder is place:
                return True
            if place not in self._claims:
                self._claims.append(place)
            self._forget(place)
            woken = self._next()
            alone = woken == [place]
            if alone:
                self._holder = self._claims.popleft()
        if not alone:
            _wake(woken)
        return alone

    def release(self, place: GatePlace) -> None:
        """End being alone, or waiting for it."""
        with self._lock:
            if self._holder is place:
                self._holder = None
                self._admitted |= self._refused
                self._refused.clear()
                woken = list(self._admitted) or self._next()
            else:
                if place in self._claims:
                    self._claims.remove(place)
                woken = self._next()
        _wake(woken)

    def is_alone(self, place: GatePlace) -> bool:
        """True if a worker has the process for itself. For this worker."""
        return self._holder is place

    def _count(self, place: GatePlace, calls: int) -> None:
        place.in_flight += calls
        self._in_flight += calls

    def _forget(self, place: GatePlace) -> None:
        self._refused.pop(place, None)
        self._admitted.pop(place, None)

    def _next(self) -> list[GatePlace]:
        """Return those that may go on now."""
        if self._holder is not None:
            return []
        if self._claims:
            return [] if self._in_flight or self._admitted else [self._claims[0]]
        refused = list(self._refused)
        self._refused.clear()
        return refused


def _wake(places: Iterable[GatePlace]) -> None:
    for place in places:
        place.wake()
