"""The executors of a Spark application, as one writer sees them: where its work is done.

On a local master the executor is the driver, and nothing is asked. On any other one the executors
are asked before the first work of the writer, whenever the set of executors changes, and after a
task found that its host does not share a directory.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.errors import BackendUnavailable, Error
from tailrace.hub.hub import Hub
from tailrace.pipeline.engine.driver import hub_directory
from tailrace.pipeline.engine.job_name import named_jobs
from tailrace.pipeline.engine.probe import (
    FIRST_PROBE_S,
    PROBE_S,
    SharedDirectories,
    ask_executors,
)
from tailrace.pipeline.engine.shared_directory import SharedDirectory, share
from tailrace.pipeline.writer import LocalSink, Writer
from tailrace.pipeline.writing.placement import WorkPlacement, place
from tailrace.spark.cluster.executors import executors_of
from tailrace.spark.cluster.settings import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 60.0
"""How soon executors that did not answer are asked again."""


class Executors:
    """The executors as one writer sees them. For one thread at a time.

    `log` is the commit log, and `directory` that of the writer's Spark files in the hub.
    `on_placed` is called with each placement.
    """

    def __init__(self, context: SparkContext, hub: Hub, log: str, directory: Path) -> None:
        self._context = context
        self._hub = hub
        self._directory = directory
        self._log_name = log
        self._local = is_local(str(context.master))
        self._known: frozenset[str] | None = None
        self._ask_at = 0.0
        self._placement = WorkPlacement()
        self._directories: SharedDirectories | None = None
        self._shared: list[SharedDirectory] = []
        self.on_placed: Callable[[WorkPlacement], None] = lambda _placement: None

    @property
    def directories(self) -> SharedDirectories | None:
        """The directories that tasks check before they use them; None on a local master."""
        return self._directories

    def placement(self, name: str, writer: Writer, stopping: threading.Event) -> WorkPlacement:
        """Return where the work of a writer is done now; ask the executors if that is not known.

        Raises `BackendUnavailable` if the directory of the sink cannot be written, or if there are
        no executors.
        """
        if self._local:
            return self._placement
        executors = executors_of(self._context)
        if executors and executors == self._known and time.monotonic() < self._ask_at:
            return self._placement
        sink = writer.local_sink(self._hub)
        directories = self._share(name, sink)
        within_s = FIRST_PROBE_S if self._known is None else PROBE_S
        with named_jobs(self._context, f"{name}: which directories executors share"):
            probe = ask_executors(self._context, directories, within_s, stopping)
        hub = str(hub_directory(self._hub))
        found = place(probe.answers, len(probe.executors), hub, sink)
        self._known, self._directories = probe.executors, directories
        self._ask_at = float("inf") if probe.is_complete else time.monotonic() + ASK_AGAIN_S
        self._replace(name, found)
        return found

    def forget(self) -> None:
        """Ask the executors again before the next work."""
        self._known = self._directories = None

    def close(self) -> None:
        """Remove the tokens from the directories."""
        while self._shared:
            self._shared.pop().remove()
        self._directories = self._known = None

    def _replace(self, name: str, found: WorkPlacement) -> None:
        for note in found.notes:
            if note not in self._placement.notes:
                _log.warning("writer %s: %s", name, note)
        self._placement = found
        with contextlib.suppress(Error):
            self.on_placed(found)

    def _share(self, name: str, sink: LocalSink | None) -> SharedDirectories:
        """Return the directories with tokens of this run; write the tokens once."""
        if self._directories is not None:
            return self._directories
        directory = hub_directory(self._hub)
        folder = str(self._directory.relative_to(directory))
        hub = self._token(LocalSink(str(directory)), name, folder)
        segments = str(directory / "topics" / self._log_name)
        token = None if sink is None else self._token(sink, name)
        return SharedDirectories(hub, segments, token)

    def _token(self, place: LocalSink, name: str, folder: str = "") -> SharedDirectory:
        try:
            made = share(place.directory, name, folder, one_host=place.one_host)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BackendUnavailable(f"{place.directory} cannot be written: {reason}") from error
        self._shared.append(made)
        return made
