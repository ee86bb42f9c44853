"""The splits of a `SplitReading` that are open, wait to be opened, or have ended for now."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

from tailrace.backend.contract import Log
from tailrace.clock import Clock
from tailrace.source.reader import Batch, ReaderSession, Until
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import find_last, unit_of
from tailrace.source.unit_status import UnitStatus

RETRY_S: Final = 1.0
"""After this time a split is read again that ended without being finished, in a run without end."""

ERROR_S: Final = 0.1
ERROR_MAX_S: Final = 10.0
"""After an error a split is read again at once. After each further one in a row the delay doubles,
from twice the first time up to the second."""


class _Place(Enum):
    """Where a split is that is not finished."""

    WAITING = auto()
    OPEN = auto()
    ENDED = auto()


class OpenSplits:
    """The splits that are read in turns. For one thread.

    A split waits until all that it follows are finished and it was opened. After an error of the
    log or of the reader it waits again, to be opened once more a little later.
    """

    def __init__(
        self, log: Log, session: ReaderSession, graph: SplitGraph, until: Until, clock: Clock
    ) -> None:
        self.waiting: set[str] = set()
        self.due = False
        """True if some that wait may start, as far as the graph knows."""
        self.changed: set[str] = set()
        """The units whose `status` may have changed. The caller empties it."""
        self._log = log
        self._session = session
        self._graph = graph
        self._until = until
        self._clock = clock
        self._batches: dict[str, Iterator[Batch | None]] = {}
        self._turns: deque[str] = deque()
        self._ended: dict[str, float] = {}
        self._finished: dict[str, Iterator[Batch | None]] = {}
        self._places: dict[str, _Place] = {}
        self._counts: dict[str, Counter[_Place]] = {}
        """For each unit with unfinished splits, how many there are in each place."""
        self._errors: dict[str, int] = {}
        """The number of errors in a row of splits."""
        self._later: dict[str, float] = {}
        """When splits are read again that had errors."""

    @property
    def failing(self) -> bool:
        """True if the last read of some split was an error."""
        return bool(self._errors)

    @property
    def done(self) -> bool:
        """True if everything was read, within the `Until`."""
        ended = self._until is Until.NOW or not self._ended
        return ended and not self._turns and not self.due and not self._later

    def add(self, split_ids: Iterable[str]) -> None:
        """Have splits wait that are not finished."""
        for split_id in split_ids:
            if not self._graph.is_finished(split_id):
                self.waiting.add(split_id)
                self._put(split_id, _Place.WAITING)
        self.due = True

    def close(self, split_id: str) -> None:
        """Read a split no longer. The graph must know it."""
        self._put(split_id, None)
        self._finished.pop(split_id, None)
        self.waiting.discard(split_id)
        self._ended.pop(split_id, None)
        self._errors.pop(split_id, None)
        self._later.pop(split_id, None)
        if self._batches.pop(split_id, None) is not None and split_id in self._turns:
            self._turns.remove(split_id)

    def finish(self, split_id: str) -> None:
        """Read an open split no longer, which is finished.

        It ends once the splits that follow it are open, so that its session knows that they come.
        """
        batches = self._batches[split_id]
        self.close(split_id)
        self._finished[split_id] = batches
        self.due = True

    def open_due(self) -> None:
        """Open the splits that may start. May be called again after an error."""
        self._add_failed()
        self._add_ended()
        if not self.due:
            return
        for split_id in sorted(self.waiting):
            if self._graph.may_start(split_id):
                self._batches[split_id] = self._opened(split_id)
                self._turns.append(split_id)
                self.waiting.discard(split_id)
                self._put(split_id, _Place.OPEN)
        self._finished.clear()
        self.due = False

    def next_batch(self) -> tuple[str, Batch] | None:
        """Return the next batch of a split, in turns; None if there is none now."""
        for _ in range(len(self._turns)):
            split_id = self._turns[0]
            try:
                batch = next(self._batches[split_id])
            except StopIteration:
                self._turns.popleft()
                self._ended[split_id] = self._clock.monotonic() + RETRY_S
                self._put(split_id, _Place.ENDED)
                continue
            except BaseException:
                # A generator that has raised cannot continue.
                self.postpone(split_id)
                raise
            self._errors.pop(split_id, None)
            self._turns.rotate(-1)
            if batch is not None:
                return split_id, batch
        return None

    def postpone(self, split_id: str) -> None:
        """Read a split again from its stored position after an error: in the next step, or later if
        it had others."""
        errors = self._errors.get(split_id, 0) + 1
        delay_s = min(ERROR_S * 2 ** min(errors - 1, 10), ERROR_MAX_S) if errors > 1 else 0.0
        self.close(split_id)
        self._put(split_id, _Place.OPEN)
        self._errors[split_id] = errors
        self._later[split_id] = self._clock.monotonic() + delay_s

    def status(self, unit: str) -> UnitStatus:
        """Return what is left to do in an owned unit."""
        counts = self._counts.get(unit)
        if counts is None:
            return UnitStatus.FINISHED
        if counts[_Place.OPEN]:
            return UnitStatus.READING
        if counts[_Place.WAITING] and not self.is_blocked(unit):
            return UnitStatus.WAITING
        return UnitStatus.READ

    def is_blocked(self, unit: str) -> bool:
        """True if splits of a unit wait, and that is no reason to go on with a run until now: what
        they wait for may have ended without being finished, and will not come."""
        counts = self._counts.get(unit)
        if self._until is not Until.NOW or counts is None or not counts[_Place.ENDED]:
            return False
        waiting = [each for each in self.waiting if self._unit(each) == unit]
        return bool(waiting) and not any(map(self._graph.may_start, waiting))

    def _put(self, split_id: str, place: _Place | None) -> None:
        """Count a split in another place; None if it is not read any more."""
        before = self._places.pop(split_id, None)
        if before is place is None:
            return
        unit = self._unit(split_id)
        counts = self._counts.setdefault(unit, Counter())
        if before is not None:
            counts[before] -= 1
        if place is not None:
            self._places[split_id] = place
            counts[place] += 1
        if not counts.total():
            del self._counts[unit]
        self.changed.add(unit)

    def _unit(self, split_id: str) -> str:
        return unit_of(self._graph.states[split_id].split)

    def _add_failed(self) -> None:
        """Have splits wait again that had errors, once it is time to."""
        if self._later:
            now = self._clock.monotonic()
            due = [each for each, at in self._later.items() if now >= at]
            for split_id in due:
                del self._later[split_id]
            if due:
                self.add(due)

    def _add_ended(self) -> None:
        """Have splits wait again that ended without being finished, in a run without end."""
        if self._until is Until.NOW or not self._ended:
            return
        now = self._clock.monotonic()
        for split_id in [each for each, at in self._ended.items() if now >= at]:
            self.close(split_id)
            self.add([split_id])

    def _opened(self, split_id: str) -> Iterator[Batch | None]:
        state = self._graph.states[split_id]
        last = find_last(self._log, state)
        known = self._graph.states
        followed = {each: known[each].position for each in state.split.follows if each in known}
        try:
            return self._session.read(state.split, state.position, last, followed)
        except BaseException:
            self.postpone(split_id)
            raise
