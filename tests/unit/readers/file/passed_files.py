"""A source of files whose splits two tasks pass to each other, each with a session that stays."""

from __future__ import annotations

from tailrace.backend.contract import raise_fence
from tailrace.clock import SystemClock
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.reader import ReaderSession, Until
from tailrace.source.reading import SplitReading
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import read_splits, table_of
from tests.unit.readers.file.followed_files import FollowedFiles

PASS_EVERY = 4
"""After this number of steps the other task takes all splits."""


class PassedFiles(FollowedFiles):
    """A source that two tasks read in turns, each for `pass_every` steps.

    A run until now reads it by itself.
    """

    pass_every = PASS_EVERY
    _tasks: tuple[tuple[ReaderSession, SplitReading], ...] = ()

    def begin(self, until: Until = Until.STOPPED) -> None:
        """Start a run of two tasks, after ending the current one."""
        self.end()
        if until is Until.NOW:
            super().begin(until)
            return
        self._epoch = raise_fence(self.hub.backend.store, table_of("s"))
        self._tasks = self._task(until), self._task(until)
        _, reading = self._tasks[0]
        reading.store_first_splits(self._epoch)
        self._steps = 0
        self._claim()

    @property
    def done(self) -> bool:
        """True if no run is active, or everything within its `Until` was read."""
        return not self._tasks and super().done

    def step(self) -> bool:
        """Do one step of the task that has the splits; sometimes pass them on before."""
        if not self._tasks:
            return super().step()
        self._steps += 1
        if self._steps % self.pass_every == 0:
            self.pass_on()
        _, reading = self._tasks[0]
        stored = reading.step()
        if reported := reading.changes.reported:
            reading.claim(sorted(reported), self._epoch)
            reported.clear()
        return stored

    def pass_on(self) -> None:
        """Let the other task read from now on."""
        _, reading = self._tasks[0]
        reading.release(list(reading.units))
        self._tasks = self._tasks[::-1]
        self._claim()

    def end(self) -> None:
        """End the run, if there is one."""
        for session, reading in self._tasks:
            reading.close()
            session.close()
        self._tasks = ()
        super().end()

    def _task(self, until: Until) -> tuple[ReaderSession, SplitReading]:
        session = self.reader.open(until)
        output = SourceOutput("s", self.log, self.letters)
        return session, SplitReading(output, session, until, SystemClock())

    def _claim(self) -> None:
        """Let the first task take all splits."""
        _, reading = self._tasks[0]
        graph = SplitGraph.of(read_splits(self.hub.backend, "s"))
        reading.claim(sorted(graph.units()), self._epoch)
