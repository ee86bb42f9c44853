"""A pipeline that runs in a thread, and recording writers for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.run import Ending, PipelineRun
from tests.pipelines.recording import RecordingWriter
from tests.waiting import DEADLINE_S


def add(made: Pipeline, tmp_path: Path, name: str, delay_s: float = 0.0, **options: Any) -> Path:
    """Give a pipeline a recording writer on the direct engine; its directory."""
    path = tmp_path / name
    path.mkdir()
    made.write(name, RecordingWriter(str(path), delay_s=delay_s), engine="direct", **options)
    return path


class Running:
    """A run in a thread of its own."""

    def __init__(self, run: PipelineRun) -> None:
        self.run = run
        self.ending: Ending | None = None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        self.ending = self.run.run()

    def stop(self) -> Ending | None:
        """Ask it to end; how it ended."""
        self.run.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return self.ending
