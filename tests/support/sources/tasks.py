"""Tasks of a source that run in threads of a test, on a hub in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tailrace.hub.hub import Hub
from tailrace.source.report import SourceProgress, SourceReport
from tailrace.source.source import Source
from tests.support.sources.split_reader import SplitReader
from tests.support.waiting import DEADLINE_S, until


class RunningTask:
    """One run of a source in a thread. Leaving the `with` block stops it."""

    def __init__(self, hub: Hub, source: Source) -> None:
        self.source = source
        self.progress: list[SourceProgress] = []
        self.report: SourceReport | None = None
        self._hub = hub
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self.progress, "the task has not begun")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the run, and wait for its end."""
        self.source.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        self.report = self.source.run(self._hub, progress=self.progress.append)


def following(directory: Path, rows: int = 5, name: str = "shop") -> Source:
    """Return a source whose splits ``a`` and ``b`` never end: each has the rows that the file
    ``rows`` of the directory tells."""
    set_rows(directory, rows)
    return Source(name, SplitReader(("a", "b"), rows_file=str(directory / "rows")))


def set_rows(directory: Path, rows: int) -> None:
    """Set the rows of each split of `following`, while tasks may read the file."""
    written = directory / "rows.new"
    written.write_text(str(rows))
    written.replace(directory / "rows")
