"""The reader of a run, in a thread of its own: from the source to the commit log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from tailrace.clock import Clock
from tailrace.errors import Error
from tailrace.hub.hub import Hub
from tailrace.pipeline.definition.definition import FollowedSource, PipelineDefinition
from tailrace.pipeline.definition.settings import CatchUp, Reading
from tailrace.pipeline.last_run import RunRecorder
from tailrace.pipeline.log_ends import LogEnds
from tailrace.pipeline.reading.backpressure import Backpressure
from tailrace.pipeline.reading.reader_failure import clear_failure
from tailrace.pipeline.writing.writer_run import WriterRun
from tailrace.source.reader import Reader, Until
from tailrace.source.run import SourceRun
from tailrace.source.task.shared_run import SharedRun

_log = logging.getLogger(__name__)

IDLE_S: Final = 0.1
"""The longest time that the thread sleeps between two polls."""

CHECK_LAG_S: Final = 0.5
"""How often the lags of the writers are read."""

CHECK_SOURCE_S: Final = 2.0
"""How often a run asks its reader for data, while the reader has found nothing to read."""


class PipelineReading:
    """Reads the source of a pipeline: alone, or as one of its tasks. `read` blocks until all is
    read, or `stop` is set; any thread may call `wake` and look at the attributes.

    `waited_for` returns the writers that the reader waits for if they are slow. A pipeline that
    follows a source reads nothing.
    """

    def __init__(
        self,
        hub: Hub,
        definition: PipelineDefinition,
        until: Until,
        *,
        clock: Clock,
        recorder: RunRecorder,
        log_ends: LogEnds,
        stop: threading.Event,
        waited_for: Callable[[], Iterable[WriterRun]],
    ) -> None:
        self.blocked_by: str | None = None
        """The writer that the reader waits for."""
        self._hub = hub
        self._definition = definition
        self._until = until
        self._clock = clock
        self._recorder = recorder
        self._log_ends = log_ends
        self._stop = stop
        self._waited_for = waited_for
        self._source: SourceRun | SharedRun | None = None
        self._caught_up = False
        self._check_source_at = 0.0

    @property
    def rows(self) -> int:
        """The rows that were read."""
        return 0 if self._source is None else self._source.rows

    @property
    def bytes(self) -> int:
        """The size of the rows that were read, in the commit log."""
        return 0 if self._source is None else self._source.bytes

    @property
    def bad(self) -> int:
        """The lines that could not be read."""
        return 0 if self._source is None else self._source.bad

    def read(self) -> None:
        """Read to the end. Raises the errors of the reader."""
        reader = self._definition.reader
        if isinstance(reader, FollowedSource):
            self._caught_up = True  # The tasks of the source tell how far they are.
        else:
            self._catch_up()
            source = self._source = self._open(reader)
            try:
                clear_failure(self._hub.backend, self._definition.name)
                self._read_from(reader, source)
            finally:
                source.close()
        self._recorder.stop_reading(caught_up=self._caught_up)

    def wake(self) -> None:
        """Have the thread see that `stop` is set."""
        if isinstance(self._source, SharedRun):
            self._source.wake()

    def _open(self, reader: Reader) -> SourceRun | SharedRun:
        hub, definition = self._hub, self._definition
        if definition.settings.reading is Reading.SHARED:
            log, letters = definition.source.open_topics(hub, self._clock.now_ms())
            return SharedRun(hub, definition.name, reader, log, letters, self._until, self._clock)
        log, letters = hub.topic(definition.commit_log), hub.topic(definition.dead_letters)
        return SourceRun(hub, definition.name, reader, log, letters, self._until, self._clock)

    def _catch_up(self) -> None:
        """Wait until every writer has delivered the commit log, if `catch_up` is all."""
        if self._definition.settings.catch_up is not CatchUp.ALL:
            return
        ends = self._log_ends.read()
        while not self._stop.is_set() and any(each.ledger.lag(ends) for each in self._waited_for()):
            self._stop.wait(IDLE_S)

    def _read_from(self, reader: Reader, source: SourceRun | SharedRun) -> None:
        bytes_max = self._definition.settings.log_bytes_max
        pressure = Backpressure(bytes_max)
        check_at, check_at_bytes = 0.0, 0
        while not self._stop.is_set() and not source.done:
            if self._clock.monotonic() >= check_at or source.bytes >= check_at_bytes:
                ends = self._log_ends.read_unless_outage()
                lags = {str(each.name): each.ledger.lag(ends) for each in self._waited_for()}
                self.blocked_by = pressure.blocked_by(lags, source.rows, source.bytes)
                check_at = self._clock.monotonic() + CHECK_LAG_S
                check_at_bytes = source.bytes + bytes_max // 10
            if not self._step(source):
                self._wait(source)
            if self._recorder.run.waiting is not None:
                self._find_data(reader, source)
        self._caught_up = self._caught_up or source.done

    def _step(self, source: SourceRun | SharedRun) -> bool:
        """Store a batch; False if there is none, or the hub cannot store it now, or the reader
        waits for a writer."""
        if isinstance(source, SharedRun):
            source.paused = self.blocked_by is not None
        elif self.blocked_by is not None:
            return False
        try:
            stored = source.step()
        except Error as error:
            self._caught_up = False
            if not error.retryable:
                raise
            _log.warning("the reader of pipeline %s retries: %s", self._definition.name, error)
            return False
        self._caught_up = not stored and self.blocked_by is None
        return stored

    def _wait(self, source: SourceRun | SharedRun) -> None:
        if isinstance(source, SharedRun):
            source.wait(IDLE_S)
        else:
            self._stop.wait(IDLE_S)

    def _find_data(self, reader: Reader, source: SourceRun | SharedRun) -> None:
        """Record that the source has something to read, once it has."""
        if source.rows or source.bad or self._has_data(reader):
            self._recorder.found_data()

    def _has_data(self, reader: Reader) -> bool:
        """Ask the reader, from time to time, if it has something to read."""
        if self._clock.monotonic() < self._check_source_at:
            return False
        self._check_source_at = self._clock.monotonic() + CHECK_SOURCE_S
        try:
            reader.check()
        except Error:
            return False
        return True
