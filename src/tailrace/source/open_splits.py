"""The splits of a `SplitReading` that are open, wait to be opened, or have ended for now."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from tailrace.backend.contract import Log
from tailrace.clock import Clock
from tailrace.source.reader import Batch, ReaderSession, Until
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import find_last
from tailrace.source.unit_status import UnitStatus

RETRY_S: Final = 1.0
"""After this time a split is read again that ended without being finished, in a run without end."""


class OpenSplits:
    """The splits that are read in turns. For one thread.

    A split waits until all that it follows are finished and it was opened. After an error of the
    log or of the reader it waits again, to be opened once more.
    """

    def __init__(
        self, log: Log, session: ReaderSession, graph: SplitGraph, until: Until, clock: Clock
    ) -> None:
        self.waiting: set[str] = set()
        self.due = False
        """True if some that wait may start, as far as the graph knows."""
        self._log = log
        self._session = session
        self._graph = graph
        self._until = until
        self._clock = clock
        self._batches: dict[str, Iterator[Batch | None]] = {}
        self._turns: deque[str] = deque()
        self._ended: dict[str, float] = {}

    @property
    def done(self) -> bool:
        """True if everything was read, within the `Until`."""
        ended = self._until is Until.NOW or not self._ended
        return ended and not self._turns and not self.due

    def add(self, split_ids: Iterable[str]) -> None:
        """Have splits wait that are not finished."""
        self.waiting.update(each for each in split_ids if not self._graph.is_finished(each))
        self.due = True

    def close(self, split_id: str) -> None:
        """Read a split no longer."""
        self.waiting.discard(split_id)
        self._ended.pop(split_id, None)
        if self._batches.pop(split_id, None) is not None and split_id in self._turns:
            self._turns.remove(split_id)

    def open_due(self) -> None:
        """Open the splits that may start. May be called again after an error."""
        self._add_ended()
        if not self.due:
            return
        for split_id in sorted(self.waiting):
            if not self._graph.waits_for(split_id):
                self._batches[split_id] = self._opened(split_id)
                self._turns.append(split_id)
                self.waiting.discard(split_id)
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
                continue
            except BaseException:
                # A generator that has raised cannot continue.
                self.close(split_id)
                self.add([split_id])
                raise
            self._turns.rotate(-1)
            if batch is not None:
                return split_id, batch
        return None

    def status(self, split_ids: Iterable[str]) -> UnitStatus:
        """Return what is left to do in a unit of these splits."""
        unfinished = [each for each in split_ids if not self._graph.is_finished(each)]
        if not unfinished:
            return UnitStatus.FINISHED
        if any(each in self._batches and each not in self._ended for each in unfinished):
            return UnitStatus.READING
        # In a run until now, what a split waits for that ended without being finished never comes.
        ended = self._until is Until.NOW and any(each in self._ended for each in unfinished)
        if not ended and any(each in self.waiting for each in unfinished):
            return UnitStatus.WAITING
        return UnitStatus.READ

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
        return self._session.read(state.split, state.position, last, followed)
