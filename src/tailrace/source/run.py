"""A run that reads a whole source alone: every row once, whatever dies and whenever."""

from __future__ import annotations

import contextlib
from typing import Any

from tailrace.backend.contract import Backend, Transaction, raise_fence
from tailrace.clock import Clock, SystemClock
from tailrace.errors import Conflict, Fenced
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.reader import Closeable, Reader, Until
from tailrace.source.reading import SplitReading
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import (
    REMOVED_EARLY,
    begun_key,
    read_splits,
    stored_fences,
    table_of,
)
from tailrace.topic.composite import check_name


class SourceRun(Closeable):
    """One run of a source by itself. For one thread.

    Takes the source over: an older run, or tasks that share the source, are `Fenced` at their next
    batch. Call `step` repeatedly; wait a little when it returns False, and stop when `done`. After
    a `retryable` error, the next `step` stores the pending batch; after any other error, start a
    new run.

    `rows`, `bytes` and `bad` count what this run has stored: rows and their bytes in the commit
    log, and dead letters.
    """

    def __init__(
        self,
        hub: Hub,
        name: str,
        reader: Reader,
        commit_log: Topic[Any],
        dead_letters: Topic[Any],
        until: Until,
        clock: Clock | None = None,
    ) -> None:
        self.name = check_name("source", name)
        self._fenced: Fenced | None = None
        self._backend = hub.backend
        output = SourceOutput(name, commit_log, dead_letters)
        # Before the reader is opened, so that it never sees data older than the positions.
        self._epoch = raise_fence(self._backend.store, table_of(name))
        mark_old_table(self._backend, name)
        self._session = reader.open(until)
        self._reading = SplitReading(output, self._session, until, clock or SystemClock())
        try:
            if not read_splits(self._backend, name).begun:
                self._reading.store_first_splits(self._epoch)
            self._take_over()
        except BaseException:
            self._session.close()
            raise

    @property
    def rows(self) -> int:
        """The rows that were stored."""
        return self._reading.rows

    @property
    def bytes(self) -> int:
        """The bytes of the rows that were stored."""
        return self._reading.bytes

    @property
    def bad(self) -> int:
        """The dead letters that were stored."""
        return self._reading.bad

    @property
    def done(self) -> bool:
        """True if everything within the `Until` of this run was read and stored."""
        return self._fenced is None and self._reading.done

    def step(self) -> bool:
        """Read and store one batch of one split, in turns; False if there is none now.

        `Fenced` once a newer run, or tasks, have taken the source over.
        """
        if self._fenced is not None:
            raise self._fenced
        try:
            stored = self._reading.step()
            if reported := self._reading.changes.reported:
                self._reading.claim(sorted(reported), self._epoch)
                reported.clear()
        except Fenced as fenced:
            self._fenced = fenced
            raise
        return stored

    def close(self) -> None:
        """End the run. The next run reads again what was read and not stored."""
        self._reading.close()
        self._session.close()

    def _take_over(self) -> None:
        """Claim all units, until no earlier run can have added another."""
        while True:
            units = SplitGraph.of(read_splits(self._backend, self.name)).units()
            missing = units.keys() - self._reading.units.keys()
            if not missing:
                break
            self._reading.claim(sorted(missing), self._epoch)
        self._reading.delete_later(stored_fences(self._backend, self.name) - units.keys())


def mark_old_table(backend: Backend, source: str) -> None:
    """Mark the table of an earlier version, which removed finished splits at once."""
    stored = read_splits(backend, source)
    if stored.states and not stored.begun:
        key = begun_key(source)
        with contextlib.suppress(Conflict):  # another task was faster
            backend.commit(Transaction(table={key: REMOVED_EARLY}, absent=(key,)))
