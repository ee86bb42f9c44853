"""A pipeline that runs in a thread, and recording writers for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run import PipelineRun
from tests.support.pipelines.recording_writer import RecordingWriter
from tests.support.waiting import DEADLINE_S


def add(made: Pipeline, tmp_path: Path, name: str, delay_s: float = 0.0, **options: Any) -> Path:
    """Add a recording writer on the direct engine, and return its directory."""
    path = tmp_path / name
    path.mkdir()
    made.write(name, RecordingWriter(str(path), delay_s=delay_s), engine="direct", **options)
    return path


class RunningPipeline:
    """A pipeline run in its own thread."""

    def __init__(self, run: PipelineRun) -> None:
        self.run = run
        self.ending: RunOutcome | None = None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        self.ending = self.run.run()

    def stop(self) -> RunOutcome | None:
        """Stop the run, and return how it ended."""
        self.run.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return self.ending
